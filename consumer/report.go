package consumer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// emit publishes and logs the new state of a record that was just written.
func (c *Consumer) emit(rec job.Record, revision uint64) {
	c.emitKind(job.EventKind(rec.State), rec, rec.Fence(revision), "")
	if rec.State == job.Succeeded && !c.cfg.Logger.Enabled(context.Background(), slog.LevelInfo) {
		return // most slots return here
	}
	log := c.cfg.Logger.With("slot", rec.Slot.ID(), "attempt", rec.Attempt)
	if rec.State == job.Succeeded && rec.Shards > 0 {
		log.Info("slot succeeded", "shards", rec.Shards)
		return
	}
	if core.Released(rec) {
		log.Info("slot released before it was started")
		return
	}
	switch rec.State {
	case job.Succeeded:
		a := rec.Attempts[len(rec.Attempts)-1]
		withOutput(log, firstLine(rec.Output)).Info("slot succeeded", "took", a.Finished.Sub(a.Started))
	case job.Missed:
		log.Debug("slot missed", "reason", rec.Error) // an outage may cause thousands of these lines
	case job.Retrying:
		withOutput(log, lastLine(rec.Output)).Warn("attempt failed", "retry_at", rec.RetryAt, "error", rec.Error)
	default:
		withOutput(log, lastLine(rec.Output)).Warn("slot "+string(rec.State), "reason", rec.Error)
	}
}

func (c *Consumer) emitKind(kind job.EventKind, rec job.Record, fence uint64, peer string) {
	if kind == job.EventTakeover {
		c.cfg.Logger.Warn("slot taken over", "slot", rec.Slot.ID(), "attempt", rec.Attempt, "owner", peer)
	}
	e := c.event(kind, rec.Slot, rec.Attempt, fence)
	e.Error, e.Peer = rec.Error, peer
	c.cfg.Emit(e)
}

func (c *Consumer) event(kind job.EventKind, s job.Slot, attempt int, fence uint64) job.Event {
	return job.Event{
		V: codec.Version, Kind: kind, Time: c.cfg.Now().UTC(), Node: c.cfg.Node.Name(),
		ID: s.ID(), Job: s.Job, Attempt: attempt, Fence: fence,
	}
}

// reportFailure reports the failed attempt whose record was just written.
func (t *task) reportFailure() {
	if t.cfg.Failed == nil || t.handlerErr == nil || t.rec.State != job.Failed && t.rec.State != job.Retrying {
		return
	}
	f := job.Failure{
		Slot: t.rec.Slot, Attempt: t.rec.Attempt, MaxAttempts: t.rec.MaxAttempts, Fence: t.fence,
		Node: t.rec.Node, Queue: t.cfg.Queue, Namespace: t.cfg.Namespace,
		Final: t.rec.State == job.Failed, RetryAt: t.rec.RetryAt, Err: t.handlerErr,
	}
	if p, ok := errors.AsType[*panicError](f.Err); ok {
		f.Err, f.Stack = withoutStack{f.Err, p}, p.stack
	}
	t.cfg.Failed(f)
}

// withoutStack wraps the error of a panic, and leaves the stack out of its text. It also wraps
// the panic's value if that is an error.
type withoutStack struct {
	error
	panic *panicError
}

func (e withoutStack) Error() string {
	return strings.TrimSuffix(e.error.Error(), "\n"+string(e.panic.stack))
}

func (e withoutStack) Unwrap() []error {
	if value, ok := e.panic.value.(error); ok {
		return []error{e.error, value}
	}
	return []error{e.error}
}

// withOutput adds a line of the handler's output to the log: the first of a success, the
// last of a failure.
func withOutput(log *slog.Logger, line string) *slog.Logger {
	if line == "" {
		return log
	}
	return log.With("output", line)
}

func firstLine(output string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(output), "\n")
	return codec.ClipTo(line, longestLine)
}

func lastLine(output string) string {
	output = strings.TrimSpace(output)
	return codec.ClipTo(output[strings.LastIndexByte(output, '\n')+1:], longestLine)
}

// longestLine bounds a line of output in the log, in bytes.
const longestLine = 80

// Observer measures the worker. Started is called before a handler starts: late is how long ago
// the slot was due, and planned is false for runs that cannot start on time: further attempts,
// triggered runs, late slots and backfills. Returned is called when a handler has returned
// after took. Waits is called when a slot was put into its job's line.
type Observer interface {
	Started(queue string, late time.Duration, planned bool)
	Returned(queue string, took time.Duration)
	Waits(queue string)
}

// started reports the start of the record's last attempt.
func (t *task) started(rec job.Record) {
	planned := rec.Attempt == 1 && rec.Slot.Token == "" && !t.d.CaughtUp && !t.d.Backfill && t.d.Offer == 0
	t.cfg.Observer.Started(t.cfg.Queue, t.cfg.Now().Sub(rec.Due), planned)
}

// The traced steps of a slot. Each attempt has all three. A slot that gets its outcome without
// an attempt has only StepComplete.
const (
	StepClaim    = "claim"
	StepRun      = "run"
	StepComplete = "complete"
)

// trace begins a step.
func (t *task) trace(ctx context.Context, step string, rec job.Record) (_ context.Context, ended func(error)) {
	if t.cfg.Trace == nil {
		return ctx, func(error) {}
	}
	return t.cfg.Trace(ctx, step, t.d, rec)
}
