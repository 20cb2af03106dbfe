package consumer_test

import (
	"context"

	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

// hookedLedger is the in-memory ledger, which conforms to the broker's, with hooks before each
// read, and before and after each write. A nil hook does nothing.
type hookedLedger struct {
	*memstore.Ledger

	read   func(job.Slot) error
	before func(job.Record, uint64) error
	after  func(job.Record)
}

func newLedger() *hookedLedger { return &hookedLedger{Ledger: memstore.New().Ledger()} }

func (l *hookedLedger) Read(ctx context.Context, s job.Slot) (job.Record, uint64, error) {
	if l.read != nil {
		if err := l.read(s); err != nil {
			return job.Record{}, 0, err
		}
	}
	return l.Ledger.Read(ctx, s)
}

func (l *hookedLedger) Write(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	if l.before != nil {
		if err := l.before(r, revision); err != nil {
			return 0, err
		}
	}
	stored, err := l.Ledger.Write(ctx, r, revision)
	if err == nil && l.after != nil {
		l.after(r)
	}
	return stored, err
}

func (l *hookedLedger) Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error)) {
	go func() { answered(l.Write(ctx, r, revision)) }()
}
