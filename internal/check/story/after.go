package story

import (
	"context"
	"errors"
	"strings"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// explainNotFollowed says why a job that comes after others does not have the slot: it shows
// the state of the slots that must succeed first.
func (t *explainer) explainNotFollowed(ctx context.Context) error {
	e, s := t.entry, t.story.Slot
	t.why("The job comes after %s.", strings.Join(e.Job.After, ", "))
	var last job.Record // the record with the latest success
	allSucceeded := true
	for _, name := range e.Job.After {
		before := s.Whole()
		before.Job = name
		r, _, err := t.Ledger.Read(ctx, before)
		t.Alive()
		switch {
		case err == nil && r.State == job.Succeeded:
			t.step(r.Finished, StepKind(r.State), r.Node, "%s succeeded", before)
			if r.Finished.After(last.Finished) {
				last = r
			}
			continue
		case errors.Is(err, job.ErrNotFound):
			t.why("There is no record of %s.", before)
		case err != nil && !exchange.IsUnreadable(err):
			return err
		case err != nil:
			t.why("The record of %s cannot be read: %v.", before, err)
		case r.State.Final():
			t.step(r.Finished, StepKind(r.State), r.Node, "%s: %s%s", before, r.State, core.Because(r.Error))
			t.why("%s %s, so this slot is not published%s.", before, verb(r.State), core.Because(r.Error))
		default:
			t.why("%s is %s.", before, r.State)
		}
		allSucceeded = false
	}
	switch {
	case !allSucceeded:
	case !e.Chained(last.Finished):
		t.why("They succeeded before %s, when this job began to come after them.", stamp(e.Since()))
	default:
		t.why("They have succeeded, so the slot should exist: the fleet publishes it within two minutes of that. If its message is lost, the fleet notices that within some minutes and publishes it again.")
	}
	return nil
}

// verb returns the outcome as a verb: "failed", "was skipped".
func verb(s job.State) string {
	if s == job.Failed || s == job.Expired {
		return string(s)
	}
	return "was " + string(s)
}
