package kv

import (
	"context"
	"time"

	"github.com/cronce-io/cronce/internal/core"
)

// SweepEnds stores the time of the last completed sweep under one key. Its methods are
// safe for concurrent use.
type SweepEnds struct{ b bucket }

const sweepKey = "sweep"

// SweepEnd is the stored value. Revision is its revision, Time the broker's timestamp.
type SweepEnd struct {
	core.SweepEnd
	Revision uint64
	Time     time.Time
}

// SweepEnds returns the store of the last completed sweep.
func (s *Store) SweepEnds() *SweepEnds {
	b := s.bucket("state")
	b.tellDenied = true // the login may predate this key
	return &SweepEnds{b}
}

// Read returns the stored value from the stream's leader. Its errors are those of
// Ledger.Read.
func (s *SweepEnds) Read(ctx context.Context) (SweepEnd, error) {
	e, err := s.b.read(ctx, sweepKey)
	end := SweepEnd{Revision: e.revision, Time: e.time}
	if err == nil {
		end.SweepEnd, err = core.DecodeSweepEnd(e.data)
	}
	return end, err
}

// Write stores the end of a sweep if revision is the last one of the key; 0 creates it.
// Its errors are those of Ledger.Write, and job.ErrDenied.
func (s *SweepEnds) Write(ctx context.Context, end core.SweepEnd, revision uint64) (uint64, error) {
	return s.b.encode(ctx, sweepKey, end.Nonce, end, revision)
}
