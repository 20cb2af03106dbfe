package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cronce-io/cronce/job"
)

// unchained says why there is no slot of a job that comes after others: what
// became of theirs.
func (t *teller) unchained(ctx context.Context) error {
	e, s := t.entry, t.story.Slot
	t.story.Why = fmt.Sprintf("The job comes after %s.", strings.Join(e.Job.After, ", "))
	var last job.Record
	waits := false
	for _, name := range e.Job.After {
		before := s.Whole()
		before.Job = name
		r, _, err := t.cfg.Ledger.Read(ctx, before)
		t.cfg.Alive()
		switch {
		case errors.Is(err, job.ErrNotFound):
			waits = true
			t.story.Why += fmt.Sprintf(" There is no record of %s.", before)
		case err != nil && !unreadable(err):
			return err
		case err != nil:
			waits = true
			t.story.Why += fmt.Sprintf(" The record of %s cannot be read: %v.", before, err)
		case r.State == job.Succeeded:
			t.step(r.Finished, StepKind(r.State), r.Node, "%s succeeded", before)
			if r.Finished.After(last.Finished) {
				last = r
			}
		case r.State.Final():
			waits = true
			t.step(r.Finished, StepKind(r.State), r.Node, "%s: %s%s", before, r.State, because(r.Error))
			t.story.Why += fmt.Sprintf(" %s %s, so this one has no turn%s.", before, ended(r.State), because(r.Error))
		default:
			waits = true
			t.story.Why += fmt.Sprintf(" %s is %s.", before, r.State)
		}
	}
	switch {
	case waits:
	case !e.Chained(last.Finished):
		t.story.Why += fmt.Sprintf(" They had succeeded before it came after them, which it does since %s.", stamp(e.Since()))
	default:
		t.story.Why += " They have succeeded, so it should be there: the fleet sees to it within two minutes of that."
	}
	return nil
}

func ended(s job.State) string {
	if s == job.Failed || s == job.Expired {
		return string(s)
	}
	return "was " + string(s)
}
