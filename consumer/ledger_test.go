package consumer_test

import (
	"context"

	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

// hookedLedger is the in-memory ledger, which conforms to the broker's, with hooks before and
// after each write. A nil hook does nothing.
type hookedLedger struct {
	*memstore.Ledger

	before func(job.Record, uint64) error
	after  func(job.Record)
}

func newLedger() *hookedLedger { return &hookedLedger{Ledger: memstore.New().Ledger()} }

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
