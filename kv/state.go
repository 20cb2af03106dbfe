package kv

import (
	"context"
	"time"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

// AlertStates stores, in the state bucket, which jobs failed, or were late, and have not
// succeeded since. It does so for jobs that ask for an alert when they recover. Its methods are
// safe for concurrent use. A sweep deletes the state of a job that is gone, and RemoveUnreadable any.
type AlertStates struct{ b wire.Bucket }

// alertKey returns the key of a job's state. Job names have no dots, so no other kind of key
// has this form.
func alertKey(job string) string { return "alert." + job }

// AlertStates returns the store of the jobs' alert states. If the permissions of a login come from an
// older "cronce auth", writes fail with job.ErrDenied.
func (s *Store) AlertStates() *AlertStates { return &AlertStates{s.bucketFailingDenied("state")} }

// Read returns the job's state and its revision, as the stream's leader has them. Errors are
// those of Ledger.Read.
func (a *AlertStates) Read(ctx context.Context, name string) (exchange.AlertState, uint64, error) {
	return read(ctx, a.b, alertKey(name), func(e wire.Entry) (exchange.AlertState, error) {
		state, err := exchange.DecodeAlertState(e.Data)
		return checkKey(a.b, e, state, err, alertKey(state.Job), "alert state: it names job", state.Job)
	})
}

// Write stores the state if revision is the last one of its key; 0 creates it. Its errors are
// those of Ledger.Write, and job.ErrDenied.
func (a *AlertStates) Write(ctx context.Context, state exchange.AlertState, revision uint64) (uint64, error) {
	return a.b.WriteValue(ctx, alertKey(state.Job), state.Nonce, state, revision)
}

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

// Watermark stores the time up to which every slot has been published, under one key.
// Its methods are safe for concurrent use.
type Watermark struct{ b wire.Bucket }

// Read returns the watermark and its revision from the stream's leader. Its errors are
// those of Ledger.Read.
func (w *Watermark) Read(ctx context.Context) (exchange.Watermark, uint64, error) {
	return read(ctx, w.b, layout.WatermarkKey, func(e wire.Entry) (exchange.Watermark, error) { return exchange.DecodeWatermark(e.Data) })
}

// Write stores the watermark if revision is the last one of the key; 0 creates it. The
// caller ensures that the watermark only moves forward. The errors are those of
// Ledger.Write.
func (w *Watermark) Write(ctx context.Context, mark exchange.Watermark, revision uint64) (uint64, error) {
	return w.b.WriteValue(ctx, layout.WatermarkKey, mark.Nonce, mark, revision)
}
