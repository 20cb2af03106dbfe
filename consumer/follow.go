package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// concluded is the verdict on a slot whose outcome stands in the ledger at revision:
// what follows from it is on its way before the message is acked. A crash between
// the two brings the message again, and its outcome is found: all of it is sent once
// more, under the IDs that it had, and folded.
func (t *task) concluded(rec job.Record, revision uint64) verdict {
	if err := t.follow(rec, revision); err != nil {
		return t.postponed(fmt.Errorf("what follows from slot %s: %w", rec.Slot, err))
	}
	return done()
}

// follow sends what follows from the outcome of a whole slot. Whether anything does
// is known without asking anybody. It is the record's, not the claim's: it goes on
// if the node has just been lost.
func (t *task) follow(rec job.Record, revision uint64) error {
	var next []core.Entry
	if rec.State == job.Succeeded {
		next = t.cfg.Registry.After(rec.Slot.Job)
	}
	alert := t.alerts(rec)
	if len(next) == 0 && !alert {
		return nil
	}
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

// alerts reports whether somebody is to be told of the outcome. If the definition
// could not be had just now, who delivers asks again.
func (t *task) alerts(rec job.Record) bool {
	switch {
	case rec.State != job.Failed && rec.State != job.Expired && rec.State != job.Missed:
		return false
	case t.view.Entry == nil:
		return t.undefined
	}
	return t.view.Entry.Job.AlertAbout(rec.State) != nil
}

// chain publishes the slot of e's job that follows from rec, if all that it comes
// after have succeeded. Two of them that succeed at the same moment on two workers
// each look for the other's record when their own is written: one of them finds it,
// and if both do the stream folds what they publish.
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
