package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// publishFollowUps publishes what follows from the outcome of a whole slot, which is t.rec,
// before the message is acked. If the worker crashes in between, the next delivery finds the
// outcome and publishes everything again. The message IDs are the same, so the stream drops the
// duplicates.
func (t *task) publishFollowUps(mayBlock bool) flow {
	var next []plans.Entry
	if t.rec.State == job.Succeeded {
		next = t.cfg.Registry.After(t.rec.Slot.Job)
	}
	alerts, tracked := t.alerts(t.rec)
	switch {
	case len(next) == 0 && len(alerts) == 0 && !tracked:
		return t.leaveAndAck()
	case !mayBlock:
		return wouldBlock
	}
	if err := t.publish(next, alerts, tracked); err != nil {
		return t.postpone(fmt.Errorf("publish what follows from slot %s: %w", t.rec.Slot, err))
	}
	return t.leaveAndAck()
}

// leaveAndAck ends the delivery of a slot that has its outcome. The slot leaves its lock before the
// message is acked.
func (t *task) leaveAndAck() flow {
	t.respondWith(ack)
	if t.leaves() {
		t.state = leaving
	}
	return onward
}

// publish publishes the alerts and the slots of the next jobs. It does so even if the node's
// lease has just ended, since they follow from the stored record and not from the claim.
func (t *task) publish(next []plans.Entry, alerts []job.State, tracked bool) error {
	rec, revision := t.rec, t.answer.revision
	ctx, cancel := context.WithTimeout(t.cfg.Life, t.cfg.Lease)
	defer cancel()
	var errs []error
	for _, kind := range alerts {
		e := exchange.NewAlert(rec, revision, kind)
		e.Node = t.cfg.Node.Name()
		if err := t.cfg.Alert(ctx, e, exchange.AlertID(rec, revision, kind), e.Time); err != nil {
			errs = append(errs, fmt.Errorf("store its alert: %w", err))
		}
	}
	if tracked {
		if err := t.track(ctx, rec, revision); err != nil {
			errs = append(errs, fmt.Errorf("store whether its job has recovered: %w", err))
		}
	}
	for _, e := range next {
		if err := t.chain(ctx, e, rec, revision); err != nil {
			errs = append(errs, fmt.Errorf("publish the slot of job %s, which comes after it: %w", e.Job.Name, err))
		}
	}
	return errors.Join(errs...)
}

// alerts returns the alerts that follow from the outcome, and whether track has to update the
// job's alert state, which says whether a later success is a recovery. If the definition could
// not be looked up, alerts returns all alerts that the job may want: the sender of alerts looks
// the definition up again.
func (t *task) alerts(rec job.Record) (kinds []job.State, tracked bool) {
	switch rec.State {
	case job.Failed, job.Expired, job.Missed, job.Succeeded:
	default:
		return nil, false
	}
	if rec.IsShadow() {
		return nil, false // nothing was done that an alert could report
	}
	switch {
	case t.view.Entry != nil:
		j := t.view.Entry.Job
		return exchange.AlertsOn(j, rec.State), j.OnRecovered != nil && t.cfg.AlertStates != nil
	case t.lookupErr == nil:
		return nil, false
	case rec.State == job.Succeeded:
		kinds = append(kinds, job.AlertHeartbeat)
	}
	return append(kinds, rec.State), t.cfg.AlertStates != nil
}

// track stores that the job has failed, or that it has recovered. If it has recovered, track
// first publishes the alert: a crash before the state is stored repeats the alert, and does not
// lose it. If two slots succeed at the same time, their workers publish the alert under the same
// message ID, and the stream drops the duplicate.
func (t *task) track(ctx context.Context, rec job.Record, revision uint64) error {
	for {
		state, at, err := t.cfg.AlertStates.Read(ctx, rec.Slot.Job)
		switch {
		case exchange.IsUnreadable(err):
			t.cfg.Logger.Warn("cannot read the alert state of a job: no alert when the job recovers", "job", rec.Slot.Job, "error", err)
			return nil
		case err != nil && !errors.Is(err, job.ErrNotFound):
			return err
		}
		next, changed, recovered := state.Next(rec, revision)
		if !changed {
			return nil
		}
		if recovered {
			e := exchange.NewAlert(rec, revision, job.AlertRecovered)
			e.Node, e.Since = t.cfg.Node.Name(), state.ID
			if err := t.cfg.Alert(ctx, e, state.RecoveredID(), state.Time); err != nil {
				return err
			}
		}
		next.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
		_, err = t.cfg.AlertStates.Write(ctx, next, at)
		switch {
		case errors.Is(err, job.ErrConflict):
			continue
		case errors.Is(err, job.ErrDenied):
			t.cfg.Logger.Warn("cannot store which jobs have failed: the login has the permissions of an older version", "job", rec.Slot.Job, "error", err, "fix", "cronce auth worker")
			return nil
		}
		return err
	}
}

// chain publishes the slot of e's job that follows from rec, if the slots of all jobs in e's
// After have succeeded. If two of them succeed at the same moment on two workers, each worker
// writes its own record and then reads the other's. At least one finds the other's record. If
// both do, the stream drops the duplicate. In the one case in which neither does (see
// kv.Ledger.Beside), the fleet's sweep finds that the slot is missing.
func (t *task) chain(ctx context.Context, e plans.Entry, rec job.Record, revision uint64) error {
	var others []job.Slot
	for _, name := range e.Job.After {
		if name != rec.Slot.Job {
			s := rec.Slot
			s.Job = name
			others = append(others, s)
		}
	}
	before := []job.Record{rec}
	if len(others) > 0 {
		found, err := t.cfg.Ledger.Beside(ctx, rec.Slot, revision, others)
		if err != nil {
			return err
		}
		before = append(before, found...)
	}
	for _, m := range core.Chain(e, before, t.d) {
		m.Node = t.cfg.Node.Name()
		if err := t.cfg.Publish(ctx, e.Job.WithDefaults().Queue, m, e.Job.Payload); err != nil {
			return err
		}
	}
	return nil
}

// response is the answer to the broker about a message.
type response struct {
	kind   responseKind
	delay  time.Duration
	reason string
}

type responseKind uint8

const (
	responseSilence responseKind = iota
	responseAck
	responseLater
	responseDrop
)

var (
	// ack: the slot has its outcome, in a durable record.
	ack = response{kind: responseAck}

	// silence: the task sends no answer, because another worker may own the slot. The broker
	// would accept an ack from this worker too, and would not deliver the message again if the
	// owner died.
	silence = response{kind: responseSilence}
)

// later asks the broker to deliver the message again, no sooner than d from now.
func later(d time.Duration) response { return response{kind: responseLater, delay: d} }

// drop asks the broker never to deliver the message again, although the task knows of no
// outcome.
func drop(reason string) response { return response{kind: responseDrop, reason: reason} }

// respond is the only step that answers the broker about a message (invariant 6). It does not
// wait until the server has the answer. If the answer is lost, the message is delivered again,
// and the record says what became of the slot.
func (t *task) respond() flow {
	var err error
	switch r := t.response; {
	case r.kind == responseAck:
		err = t.msg.Ack()
	case r.kind == responseLater && r.delay > 0:
		err = t.msg.NakWithDelay(r.delay)
	case r.kind == responseLater:
		err = t.msg.Nak()
	case r.kind == responseDrop:
		err = t.msg.TermWithReason(r.reason)
		t.cfg.Logger.Error("slot message dropped", "subject", t.msg.Subject(), "reason", r.reason)
	}
	if err != nil {
		t.cfg.Logger.Debug("answer not sent; the broker will deliver the message again", "subject", t.msg.Subject(), "error", err)
	}
	return t.close()
}
