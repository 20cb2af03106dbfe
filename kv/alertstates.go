package kv

import (
	"context"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

// AlertStates stores, in the state bucket, which jobs failed, or were late, and have not
// succeeded since. It does so for jobs that ask for an alert when they recover. Its methods are
// safe for concurrent use. Only RemoveUnreadable deletes a state.
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
