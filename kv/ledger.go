package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// Ledger keeps one record per slot: its state and its outcome. Its methods are safe for
// concurrent use.
type Ledger struct{ b wire.Bucket }

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
	// Job selects the records of one job. Empty: all. Ranges selects only those of its ranges of
	// missed slots.
	Job    string
	Ranges bool

	// Since selects the records last written at this time or later. Zero: all.
	Since time.Time
}

// Read returns the slot's record and its revision, as the stream's leader has them. It
// asks until it is answered or ctx ends. If ctx ends first, the error wraps
// job.ErrUnknown. If there is no record, the error wraps job.ErrNotFound, and the
// revision is that of the delete marker, or 0. Write expects this revision for a first
// record. If the record cannot be decoded, the error is an *UnreadableError. If the server
// does not permit the read, Read fails at once with job.ErrDenied.
func (l *Ledger) Read(ctx context.Context, slot job.Slot) (job.Record, uint64, error) {
	return read(ctx, l.b, slot.Key(), l.decode)
}

// recordTitle names a record by its slot's ID, which is the only name that users know.
func recordTitle(key string) string {
	slot, err := job.ParseSlotKey(key)
	if err != nil {
		return "record " + key
	}
	return "record of " + slot.ID()
}

// Beside returns the existing records of others. It reads each of them together with the record of
// own, in one answer of one replica, and accepts only an answer in which own's record has this
// revision or a later one. So if two writers each look for the other's record after their own
// write, the later writer finds it. There is one exception: if a deposed leader that has not
// noticed its deposition answers both writers, neither may find the other's record. If the records
// are too large for one answer, or their names for one request, Beside asks for fewer of them at
// once, always with own's. It asks until it gets such answers or ctx ends. If ctx ends first, the
// error wraps job.ErrUnknown. If the server does not permit the read, Beside fails at once with
// job.ErrDenied.
func (l *Ledger) Beside(ctx context.Context, own job.Slot, revision uint64, others []job.Slot) ([]job.Record, error) {
	var records []job.Record
	ownSubject, began, pause := l.b.Subject(own.Key()), time.Now(), wire.NewBackoff()
	for atOnce := len(others); len(others) > 0; {
		subjects := []string{ownSubject}
		for _, s := range others[:min(atOnce, len(others))] {
			subjects = append(subjects, l.b.Subject(s.Key()))
		}
		found, cut, err := l.b.Get(ctx, l.b.Stream, map[string]any{"multi_last": subjects})
		fresh := slices.ContainsFunc(found, func(e wire.Entry) bool { return e.Subject == ownSubject && e.Revision >= revision })
		switch {
		case errors.Is(err, job.ErrDenied):
			return nil, fmt.Errorf("read the records beside %s: %w", own, err)
		case (cut || errors.Is(err, nats.ErrMaxPayload)) && atOnce > 1:
			atOnce /= 2
			continue
		case err == nil && fresh && !cut:
			decoded, err := l.decodeOthers(found, ownSubject)
			if err != nil {
				return nil, err
			}
			records, others = append(records, decoded...), others[len(subjects)-1:]
			continue
		}
		if !wire.Wait(ctx, pause.NextBackOff()) {
			return nil, fmt.Errorf("read the records beside %s: %w (after %v)", own, job.ErrUnknown, time.Since(began).Round(time.Millisecond))
		}
	}
	return records, nil
}

func (l *Ledger) decodeOthers(found []wire.Entry, own string) ([]job.Record, error) {
	var records []job.Record
	for _, e := range found {
		if e.Subject == own || e.Gone() {
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
// the new revision. If another write came first, or has replaced the record since, the error
// is job.ErrConflict. If no answer comes before ctx ends, the error is job.ErrUnknown: only
// writing the same record (with the same Nonce) at the same revision again settles it. Each
// new record needs a Nonce of its own.
func (l *Ledger) Write(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	return wire.Await(func(answered func(uint64, error)) { l.Send(ctx, r, revision, answered) })
}

// Send is Write without blocking. It calls answered once with the results of Write, from
// any goroutine, including the caller's. answered must not block: it would delay the
// answers to all other writes of the process.
func (l *Ledger) Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error)) {
	w := l.b.Writing(ctx, r.Slot.Key(), revision, answered)
	data, err := exchange.AppendRecord(w.Data, r, l.b.Room())
	recordHeader(r, w.Set)
	w.SendValue(data, r.Nonce, err)
}

// List iterates over the records, oldest write first. Any replica answers, so the newest writes
// may be missing. A record that cannot be read yields an error that wraps job.ErrVersion or
// job.ErrInvalid, and the iteration continues. Any other error ends it.
func (l *Ledger) List(ctx context.Context, f ListFilter) iter.Seq2[LedgerEntry, error] {
	return func(yield func(LedgerEntry, error) bool) {
		if err := codec.ValidateJobFilter(f.Job); err != nil {
			yield(LedgerEntry{}, err)
			return
		}
		l.each(wire.Ahead(ctx, func(ctx context.Context) iter.Seq2[[]wire.Entry, error] { return l.found(ctx, f) }), yield)
	}
}

// Lister is what RangeOf asks. *Ledger implements it.
type Lister interface {
	List(ctx context.Context, f ListFilter) iter.Seq2[LedgerEntry, error]
}

// RangeOf returns the newest range of missed slots that begins at or before the slot's instant and
// ends at or after it. If there is none, the error wraps job.ErrNotFound. A slot that has a record of
// its own is not missed, even if a range has it between its ends.
func RangeOf(ctx context.Context, l Lister, s job.Slot) (found LedgerEntry, err error) {
	if !s.At.IsZero() && !s.Range {
		for e, err := range l.List(ctx, ListFilter{Job: s.Job, Ranges: true}) {
			switch {
			case exchange.IsUnreadable(err):
			case err != nil:
				return LedgerEntry{}, err
			case !s.At.Before(e.Slot.At) && !s.At.After(e.Last):
				found = e
			}
		}
	}
	if found.Revision == 0 {
		return found, fmt.Errorf("range of missed slots with %s: %w", s, job.ErrNotFound)
	}
	return found, nil
}

// each decodes the messages of batches, and yields them until the caller stops or a batch fails.
func (l *Ledger) each(batches iter.Seq2[[]wire.Entry, error], yield func(LedgerEntry, error) bool) {
	for found, err := range batches {
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

// found returns the messages for List. If the filter names a job with few records, it
// asks for them by subject, so the records of other jobs do not slow it down.
func (l *Ledger) found(ctx context.Context, f ListFilter) iter.Seq2[[]wire.Entry, error] {
	if f.Job == "" {
		return l.b.Batches(ctx, l.b.Stream, "", f.Since)
	}
	filter := l.b.Subject(f.Job + ".>")
	if f.Ranges {
		filter = l.b.Subject(f.Job + ".m.*")
	}
	return func(yield func([]wire.Entry, error) bool) {
		// If this fails, the pass below gets the same error and retries.
		if few, complete, err := l.b.Few(ctx, l.b.Stream, filter); err == nil && complete {
			yield(slices.DeleteFunc(few, func(e wire.Entry) bool { return e.Time.Before(f.Since) }), nil)
			return
		}
		l.b.Batches(ctx, l.b.Stream, filter, f.Since)(yield)
	}
}

// decoded is one record of a List, or the error of decoding it.
type decoded struct {
	LedgerEntry
	err error
}

// decodeAll decodes a batch on all cores. Decoding takes most of the time of a listing.
func (l *Ledger) decodeAll(found []wire.Entry) []decoded {
	found = slices.DeleteFunc(found, wire.Entry.Gone)
	return wire.OnAllCores(found, func(e wire.Entry) decoded {
		r, err := l.decode(e)
		return decoded{LedgerEntry{r, e.Revision, e.Time}, err}
	})
}

func (l *Ledger) decode(e wire.Entry) (job.Record, error) {
	r, err := exchange.DecodeRecord(e.Data)
	return checkKey(l.b, e, r, err, r.Slot.Key(), "record: it names slot", r.Slot)
}

// Newest iterates over the records of one job, newest write first. An empty name selects all
// jobs. The number of requests depends on how many records the caller takes, and not on how many
// the ledger has. Any replica answers, so the newest writes may be missing. Its errors are those
// of List.
func (l *Ledger) Newest(ctx context.Context, name string) iter.Seq2[LedgerEntry, error] {
	return func(yield func(LedgerEntry, error) bool) {
		if err := codec.ValidateJobFilter(name); err != nil {
			yield(LedgerEntry{}, err)
			return
		}
		prefix := ""
		if name != "" {
			prefix = name + "."
		}
		l.each(l.b.Backward(ctx, prefix), yield)
	}
}

// Records returns the records of the named slots that exist, with few requests. Any replica
// answers, so a record may be stale, or missing if it is new. A record that cannot be read
// is left out.
func (l *Ledger) Records(ctx context.Context, slots []job.Slot) (map[job.Slot]LedgerEntry, error) {
	all := make(map[job.Slot]LedgerEntry, len(slots))
	err := l.b.EachLatest(ctx, len(slots), func(i int) string { return slots[i].Key() }, func(found []wire.Entry) {
		for _, r := range l.decodeAll(found) {
			if r.err == nil {
				all[r.Slot] = r.LedgerEntry
			}
		}
	})
	return all, err
}
