package kv

import (
	"context"
	"time"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

// SweepEnds stores the end of the last completed sweep, under one key. In a sweep, a node looks
// for slots whose messages were lost, and publishes them again (see internal/fleet/sweep). The
// methods of SweepEnds are safe for concurrent use.
type SweepEnds struct{ b wire.Bucket }

// SweepEnd is the stored value. Revision is its revision, Time the broker's timestamp.
type SweepEnd struct {
	exchange.SweepEnd
	Revision uint64
	Time     time.Time
}

// SweepEnds returns the store of the last completed sweep's end. If the permissions of a login
// come from an older "cronce auth", writes fail with job.ErrDenied.
func (s *Store) SweepEnds() *SweepEnds { return &SweepEnds{s.bucketFailingDenied("state")} }

// Read returns the stored value from the stream's leader. Its errors are those of
// Ledger.Read.
func (s *SweepEnds) Read(ctx context.Context) (SweepEnd, error) {
	e, err := s.b.Read(ctx, layout.SweepKey)
	end := SweepEnd{Revision: e.Revision, Time: e.Time}
	if err == nil {
		end.SweepEnd, err = exchange.DecodeSweepEnd(e.Data)
	}
	return end, err
}

// Write stores the end of a sweep if revision is the last one of the key; 0 creates it.
// Its errors are those of Ledger.Write, and job.ErrDenied.
func (s *SweepEnds) Write(ctx context.Context, end exchange.SweepEnd, revision uint64) (uint64, error) {
	return s.b.WriteValue(ctx, layout.SweepKey, end.Nonce, end, revision)
}
