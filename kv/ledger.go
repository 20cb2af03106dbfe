package kv

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Ledger keeps one record per slot: its state and its outcome. Its methods are safe for
// concurrent use.
type Ledger struct{ b bucket }

// LedgerEntry is a stored record.
type LedgerEntry struct {
	job.Record

	// Revision is the revision of the record's last write. Time is the broker's timestamp
	// of that write.
	Revision uint64
	Time     time.Time
}

// ListFilter narrows Ledger.List. The zero value selects all records.
type ListFilter struct {
	// Job selects the records of one job. Empty: all.
	Job string

	// Since selects the records last written at this time or later. Zero: all.
	Since time.Time
}

// Read returns the slot's record and its revision, as the stream's leader has them. It
// asks until it is answered or ctx ends. If ctx ends first, the error wraps
// job.ErrUnknown. If there is no record, the error wraps job.ErrNotFound, and the
// revision is that of the delete marker, or 0. Write expects this revision for a first
// record.
func (l *Ledger) Read(ctx context.Context, slot job.Slot) (job.Record, uint64, error) {
	e, err := l.b.read(ctx, slot.Key())
	if err != nil {
		return job.Record{}, e.revision, err
	}
	r, err := l.decode(e)
	return r, e.revision, err
}

// Beside returns the existing records of others, as of a replica that has stored own's
// record at revision or later. One answer of one replica holds all records. So if two
// writers each look for the other's record after their own write, the later writer finds
// it. One case remains: a deposed leader that does not know it could hide the record from
// both. Beside asks until it gets such an answer or ctx ends. If ctx ends first, the
// error wraps job.ErrUnknown.
func (l *Ledger) Beside(ctx context.Context, own job.Slot, revision uint64, others []job.Slot) ([]job.Record, error) {
	subjects := []string{l.b.subject(own.Key())}
	for _, s := range others {
		subjects = append(subjects, l.b.subject(s.Key()))
	}
	began, pause := time.Now(), newPause()
	for {
		found, _, err := l.b.get(ctx, l.b.stream(), map[string]any{"multi_last": subjects})
		fresh := slices.ContainsFunc(found, func(e entry) bool { return e.subject == subjects[0] && e.revision >= revision })
		if err == nil && fresh {
			return l.decodeOthers(found, subjects[0])
		}
		if !wait(ctx, pause.NextBackOff()) {
			return nil, fmt.Errorf("read beside %s: %w (after %v)", own, job.ErrUnknown, time.Since(began).Round(time.Millisecond))
		}
	}
}

func (l *Ledger) decodeOthers(found []entry, own string) ([]job.Record, error) {
	var records []job.Record
	for _, e := range found {
		if e.subject == own || e.gone() {
			continue
		}
		r, err := l.decode(e)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// Write stores the record if revision is the slot's last one; 0 creates it. It returns
// the new revision. If another write came first, the error is job.ErrConflict. If no
// answer comes before ctx ends, the error is job.ErrUnknown: only writing the same record
// (with the same Nonce) at the same revision again settles it. Each new record needs a
// Nonce of its own.
func (l *Ledger) Write(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	return await(func(told func(uint64, error)) { l.Send(ctx, r, revision, told) })
}

// Send is Write without blocking. It calls answered once with the results of Write, from
// any goroutine, including the caller's. answered must not block: it would delay the
// answers to all other writes of the process.
func (l *Ledger) Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error)) {
	w := l.b.writing(ctx, r.Slot.Key(), revision, answered)
	data, err := core.AppendRecord(w.data, r, l.b.room())
	recordHeader(r, w.set)
	w.sendValue(data, r.Nonce, err)
}

// List iterates over the records, oldest write first. Like every read it is a hint: the
// newest writes may be missing. A record that cannot be read yields an error that wraps
// job.ErrVersion or job.ErrInvalid, and the iteration continues. Any other error ends it.
func (l *Ledger) List(ctx context.Context, f ListFilter) iter.Seq2[LedgerEntry, error] {
	return func(yield func(LedgerEntry, error) bool) {
		if f.Job != "" {
			if err := codec.ValidateName("job", f.Job); err != nil {
				yield(LedgerEntry{}, err)
				return
			}
		}
		for found, err := range ahead(ctx, func(ctx context.Context) iter.Seq2[[]entry, error] { return l.found(ctx, f) }) {
			if err != nil {
				yield(LedgerEntry{}, err)
				return
			}
			for _, r := range l.decodeAll(found) {
				if !yield(r.LedgerEntry, r.err) {
					return
				}
			}
		}
	}
}

// found returns the messages for List. If the filter names a job with few records, it
// asks for them by subject, so the records of other jobs do not slow it down.
func (l *Ledger) found(ctx context.Context, f ListFilter) iter.Seq2[[]entry, error] {
	if f.Job == "" {
		return l.b.batches(ctx, l.b.stream(), "", f.Since)
	}
	filter := l.b.subject(f.Job + ".>")
	return func(yield func([]entry, error) bool) {
		// If this fails, the pass below gets the same error and retries.
		if few, complete, err := l.b.few(ctx, l.b.stream(), filter); err == nil && complete {
			yield(slices.DeleteFunc(few, func(e entry) bool { return e.time.Before(f.Since) }), nil)
			return
		}
		l.b.batches(ctx, l.b.stream(), filter, f.Since)(yield)
	}
}

// decoded is one record of a List, or the error of decoding it.
type decoded struct {
	LedgerEntry
	err error
}

// decodeAll decodes a batch on all cores. Decoding takes most of the time of a listing.
func (l *Ledger) decodeAll(found []entry) []decoded {
	found = slices.DeleteFunc(found, entry.gone)
	return onAllCores(found, func(e entry) decoded {
		r, err := l.decode(e)
		return decoded{LedgerEntry{r, e.revision, e.time}, err}
	})
}

// onAllCores returns f of each entry, in order.
func onAllCores[T any](found []entry, f func(entry) T) []T {
	all := make([]T, len(found))
	var parts sync.WaitGroup
	size := max(1, (len(found)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for part := range slices.Chunk(all, size) {
		entries := found[:len(part)]
		found = found[len(part):]
		parts.Go(func() {
			for i, e := range entries {
				part[i] = f(e)
			}
		})
	}
	parts.Wait()
	return all
}

// ahead iterates over seq and prepares the next value while the caller uses the last one.
func ahead[T any](ctx context.Context, seq func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		type item struct {
			value T
			err   error
		}
		ctx, cancel := context.WithCancel(ctx)
		items, enough := make(chan item), make(chan struct{})
		go func() {
			defer close(items)
			for value, err := range seq(ctx) {
				select {
				case items <- item{value, err}:
				case <-enough: // ctx is not checked here: the caller must receive its error
					return
				}
			}
		}()
		defer func() {
			close(enough)
			cancel()
			for range items { // until the goroutine ends
			}
		}()
		for i := range items {
			if !yield(i.value, i.err) {
				return
			}
		}
	}
}

func (l *Ledger) decode(e entry) (job.Record, error) {
	r, err := core.DecodeRecord(e.data)
	if err == nil && r.Slot.Key() != l.b.key(e.subject) {
		err = fmt.Errorf("%w record: it names slot %q", job.ErrInvalid, r.Slot)
	}
	if err != nil {
		return r, l.b.unreadable(e, err)
	}
	return r, nil
}
