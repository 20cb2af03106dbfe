package kv

import (
	"context"
	"time"

	"github.com/cronce-io/cronce/internal/core"
)

// SweepEnds is the one key that says when a sweep last came to its end. Its methods
// are safe for concurrent use.
type SweepEnds struct{ b bucket }

const sweepKey = "sweep"

// SweepEnd is how the key stands, at Revision. Time is the broker's timestamp.
type SweepEnd struct {
	core.SweepEnd
	Revision uint64
	Time     time.Time
}

// SweepEnds is where sweeps say that they came to their end.
func (s *Store) SweepEnds() *SweepEnds {
	b := s.bucket("state")
	b.tellDenied = true // the login may be of a version that had no such key
	return &SweepEnds{b}
}

// Read returns what stands there, as the stream's leader has it. Errors are those of
// Ledger.Read.
func (s *SweepEnds) Read(ctx context.Context) (SweepEnd, error) {
	e, err := s.b.read(ctx, sweepKey)
	end := SweepEnd{Revision: e.revision, Time: e.time}
	if err == nil {
		end.SweepEnd, err = core.DecodeSweepEnd(e.data)
	}
	return end, err
}

// Write stores the end of a sweep if revision is the last one: 0 creates. Errors are
// those of Ledger.Write, and job.ErrDenied.
func (s *SweepEnds) Write(ctx context.Context, end core.SweepEnd, revision uint64) (uint64, error) {
	return s.b.encode(ctx, sweepKey, end.Nonce, end, revision)
}
