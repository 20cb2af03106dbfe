package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// follow publishes what follows from the outcome of a whole slot, which is t.rec, before the
// message is acked. If the worker crashes in between, the next delivery finds the outcome and
// publishes everything again. The message IDs are the same, so the stream drops the duplicates.
func (t *task) follow(mayBlock bool) progress {
	var next []core.Entry
	if t.rec.State == job.Succeeded {
		next = t.cfg.Registry.After(t.rec.Slot.Job)
	}
	alert := t.rec.State != job.Succeeded && t.alerts(t.rec)
	switch {
	case len(next) == 0 && !alert:
		return t.end(ack)
	case !mayBlock:
		return blocks
	}
	if err := t.publish(next, alert); err != nil {
		return t.postpone(fmt.Errorf("what follows from slot %s: %w", t.rec.Slot, err))
	}
	return t.end(ack)
}

// publish publishes the alert and the slots of the next jobs. It does so even if the node's
// lease has just ended, since they follow from the stored record and not from the claim.
func (t *task) publish(next []core.Entry, alert bool) error {
	rec, revision := t.rec, t.answer.revision
	ctx, cancel := context.WithTimeout(t.cfg.Life, t.cfg.Lease)
	defer cancel()
	var errs []error
	if alert {
		e := core.NewAlert(rec, revision)
		e.Node = t.cfg.Node.Name()
		if err := t.cfg.Alert(ctx, e, core.AlertID(rec, revision)); err != nil {
			errs = append(errs, fmt.Errorf("its alert: %w", err))
		}
	}
	for _, e := range next {
		if err := t.chain(ctx, e, rec, revision); err != nil {
			errs = append(errs, fmt.Errorf("job %s, which comes after it: %w", e.Job.Name, err))
		}
	}
	return errors.Join(errs...)
}

// alerts reports whether the outcome needs an alert. If the definition could not be looked up, it
// returns true: the sender of alerts looks it up again.
func (t *task) alerts(rec job.Record) bool {
	switch {
	case rec.State != job.Failed && rec.State != job.Expired && rec.State != job.Missed:
		return false
	case t.view.Entry == nil:
		return t.undefined != nil
	}
	return core.AlertAbout(t.view.Entry.Job, rec.State) != nil
}

// chain publishes the slot of e's job that follows from rec, if the slots of all jobs in e's
// After have succeeded. If two of them succeed at the same moment on two workers, each worker
// writes its own record and then reads the other's. At least one finds the other's record. If
// both do, the stream drops the duplicate.
func (t *task) chain(ctx context.Context, e core.Entry, rec job.Record, revision uint64) error {
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
		if err := t.cfg.Publish(ctx, e.Job.Queue, m, e.Job.Payload); err != nil {
			return err
		}
	}
	return nil
}
