package cronce

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
)

// TriggerOptions describes a run that is ordered outside a job's schedule. The zero value
// is a new run, at once, with the job's own payload.
type TriggerOptions struct {
	// Key names the run: at most job.MaxToken bytes of text. The same key, from any replica
	// and within the ledger's retention, is the same run. If it is empty, each call is a run
	// of its own, with a random key.
	Key string

	// At is when the run is due. If it is zero or in the past, the run is due at once. The
	// NATS server keeps a later run until it is due, which needs version 2.12 or newer.
	At time.Time

	// Payload is any JSON of at most job.MaxPayload bytes. If it is nil, the handler gets the
	// job's own payload.
	Payload json.RawMessage
}

// Triggered is the run that a call of Trigger ordered.
type Triggered struct {
	// Slot names the run. Its Token is the key.
	Slot job.Slot

	// New is false if a run with this key existed. It keeps the time and the payload of its
	// first order.
	New bool

	// State is job.Pending until a worker has started the run.
	State job.State
}

// Trigger orders one run of a job, and returns when the broker has stored it. A paused job
// can be triggered.
//
// With WithTracerProvider the run belongs to the trace of ctx, if there is one.
//
// The error wraps job.ErrNotFound if the registry has no such job, errors.ErrUnsupported if
// the server is too old for TriggerOptions.At, and job.ErrUnknown if ctx ended before the
// broker answered: then a call with the same key settles whether the run exists. Trigger
// may be called before Run or without it, and concurrently.
func (s *Scheduler) Trigger(ctx context.Context, name string, o TriggerOptions) (Triggered, error) {
	host := s.cfg.host
	if host == "" {
		host, _ = os.Hostname() // only shown: the host that triggered
	}
	c := control.New(control.Config{
		Jobs: s.store.Jobs(), Ledger: s.store.Ledger(), Slots: s.store.Slots(), Timers: s.store.Timers(),
		Settings: s.store.Settings(), Now: s.store.Time, Operator: host,
	})
	order := control.Order{Job: name, Key: o.Key, At: o.At, Payload: o.Payload}
	if s.tracer != nil {
		order.Traceparent = tracing.Traceparent(ctx)
	}
	t, err := c.Trigger(ctx, order)
	return Triggered{Slot: t.Slot, New: t.New, State: t.State}, err
}
