package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Ledger is a kv.Ledger in memory, with the methods that tests need.
type Ledger struct{ *Bucket }

func (l *Ledger) Read(ctx context.Context, slot job.Slot) (job.Record, uint64, error) {
	return get(ctx, l.Bucket, slot.Key(), exchange.DecodeRecord)
}

func (l *Ledger) Write(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	return l.put(ctx, r.Slot.Key(), r.Nonce, r, revision)
}

func (l *Ledger) Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error)) {
	go func() { answered(l.Write(ctx, r, revision)) }()
}

func (l *Ledger) Beside(ctx context.Context, own job.Slot, revision uint64, others []job.Slot) ([]job.Record, error) {
	if _, stored, err := l.Read(ctx, own); err != nil || stored < revision {
		return nil, fmt.Errorf("read the records beside %s, which is at revision %d, want at least %d: %w", own, stored, revision, errors.Join(job.ErrUnknown, err))
	}
	var records []job.Record
	for _, s := range others {
		switch r, _, err := l.Read(ctx, s); {
		case err == nil:
			records = append(records, r)
		case !errors.Is(err, job.ErrNotFound):
			return nil, err
		}
	}
	return records, nil
}

func (l *Ledger) List(_ context.Context, f kv.ListFilter) iter.Seq2[kv.LedgerEntry, error] {
	return func(yield func(kv.LedgerEntry, error) bool) {
		all, _, _ := l.snapshot()
		for _, e := range all {
			if e.data == nil || f.Job != "" && !strings.HasPrefix(e.key, f.Job+".") || f.Ranges && !strings.HasPrefix(e.key, f.Job+".m.") || e.at.Before(f.Since) {
				continue
			}
			r, err := exchange.DecodeRecord(e.data)
			if !yield(kv.LedgerEntry{Record: r, Revision: e.revision, Time: e.at}, err) {
				return
			}
		}
	}
}

func (l *Ledger) Newest(ctx context.Context, name string) iter.Seq2[kv.LedgerEntry, error] {
	return func(yield func(kv.LedgerEntry, error) bool) {
		type listed struct {
			kv.LedgerEntry
			err error
		}
		var all []listed
		for e, err := range l.List(ctx, kv.ListFilter{Job: name}) {
			all = append(all, listed{e, err})
		}
		slices.SortFunc(all, func(x, y listed) int { return cmp.Compare(y.Revision, x.Revision) })
		for _, e := range all {
			if !yield(e.LedgerEntry, e.err) {
				return
			}
		}
	}
}

func (l *Ledger) Records(ctx context.Context, slots []job.Slot) (map[job.Slot]kv.LedgerEntry, error) {
	found := map[job.Slot]kv.LedgerEntry{}
	for _, s := range slots {
		if r, revision, err := l.Read(ctx, s); err == nil {
			found[s] = kv.LedgerEntry{Record: r, Revision: revision}
		}
	}
	return found, nil
}
