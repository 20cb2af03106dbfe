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

// Ledger keeps one record per slot: what became of it. Its methods are safe for
// concurrent use.
type Ledger struct{ b bucket }

// LedgerEntry is a record as it stands in the ledger.
type LedgerEntry struct {
	job.Record

	// Revision is the fence of the record's last write, Time the broker's
	// timestamp of it.
	Revision uint64
	Time     time.Time
}

// ListFilter narrows Ledger.List. Its zero value takes everything.
type ListFilter struct {
	// Job takes the records of one job. Empty: of all.
	Job string

	// Since takes the records last written at it or later. Zero: all.
	Since time.Time
}

// Read returns the slot's record and its revision, as the stream's leader has
// it. It asks until it is answered or ctx ends: then the error wraps
// job.ErrUnknown. No record is job.ErrNotFound, and the revision then is that of
// the marker that stands in its place, or 0: what Write wants for a first record.
func (l *Ledger) Read(ctx context.Context, slot job.Slot) (job.Record, uint64, error) {
	e, err := l.b.read(ctx, slot.Key())
	if err != nil {
		return job.Record{}, e.revision, err
	}
	r, err := l.decode(e)
	return r, e.revision, err
}

// Beside returns the records of others, of those that have one, by a server that
// has own's record at revision or has had it. One answer of one server holds all of
// them: so of two writers who each look for the other's record after their own
// write, whoever was the later one finds it. A leader that was deposed and does not
// know could hide it from both. It asks until it is answered so, or ctx ends: then
// the error wraps job.ErrUnknown.
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

// Write stores the record if revision is the last one of its slot: 0 creates.
// It returns the new revision. Somebody else's write is job.ErrConflict; no
// answer until ctx ends is job.ErrUnknown, which only the same record (the same
// Nonce) written again at the same revision settles. The record needs a Nonce
// that no other write has.
func (l *Ledger) Write(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	return await(func(told func(uint64, error)) { l.Send(ctx, r, revision, told) })
}

// Send is Write for those who do not wait: answered is called once with what Write
// returns, by any goroutine, the caller's included. It must not block: the answers to all
// other writes of the process wait for it.
func (l *Ledger) Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error)) {
	w := l.b.writing(ctx, r.Slot.Key(), revision, answered)
	data, err := core.AppendRecord(w.data, r, l.b.room())
	recordHeader(r, w.set)
	w.sendValue(data, r.Nonce, err)
}

// List passes over the records, oldest write first. It is a hint, as every read
// is: the newest writes may be missing. A record that cannot be read comes with
// an error that wraps job.ErrVersion or job.ErrInvalid and does not end the pass;
// any other error does.
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

// found is what the broker has for List. Of one job with few records it is asked
// by key, which takes it no longer if others have many.
func (l *Ledger) found(ctx context.Context, f ListFilter) iter.Seq2[[]entry, error] {
	if f.Job == "" {
		return l.b.batches(ctx, l.b.stream(), "", f.Since)
	}
	filter := l.b.subject(f.Job + ".>")
	return func(yield func([]entry, error) bool) {
		// An error is for the pass to meet again, and to repeat.
		if few, complete, err := l.b.few(ctx, l.b.stream(), filter); err == nil && complete {
			yield(slices.DeleteFunc(few, func(e entry) bool { return e.time.Before(f.Since) }), nil)
			return
		}
		l.b.batches(ctx, l.b.stream(), filter, f.Since)(yield)
	}
}

// decoded is one record of a List, or why it cannot be read.
type decoded struct {
	LedgerEntry
	err error
}

// decodeAll reads a batch with all the cores there are: of a listing, it is what
// takes the time.
func (l *Ledger) decodeAll(found []entry) []decoded {
	found = slices.DeleteFunc(found, entry.gone)
	return onAllCores(found, func(e entry) decoded {
		r, err := l.decode(e)
		return decoded{LedgerEntry{r, e.revision, e.time}, err}
	})
}

// onAllCores is f of each entry.
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

// ahead is seq, with its next value in the making while the last one is used.
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
				case <-enough: // and not ctx: its end is an error to be told
					return
				}
			}
		}()
		defer func() {
			close(enough)
			cancel()
			for range items { // until it has ended
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
