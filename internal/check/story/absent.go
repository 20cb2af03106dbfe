package story

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/text/suggest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// explainAbsent says why the slot has neither a record nor a message. It tries the possible
// reasons in order, from the job's definition to the watermark, and gives the first that holds.
func (t *explainer) explainAbsent(ctx context.Context) error {
	s := t.story.Slot
	t.addEvents()
	switch {
	case t.entryErr != nil:
		t.why("The definition of job %s cannot be read, so the job is disabled: %v.", s.Job, t.entryErr)
	case t.lock.Holds(s):
		t.story.State = job.Pending
		t.why("It holds a place in its job's lock, and its message is gone. If no worker has the slot, the fleet publishes it again within two minutes. " +
			"A triggered run ends then instead, since its payload is gone too. cronce slot cancel ends the slot now.")
	case t.removal != "":
		t.why("%s: it has no slots, and this one has no record.", t.removal)
	case t.entry == nil:
		return t.explainNoJob(ctx)
	case s.Token != "" && !t.entry.Job.On.IsZero():
		stream := t.entry.Job.On.Stream
		t.why("No message of stream %s with this ID or sequence has started the job, and no operator has triggered the run; or it is older than the ledger's retention of %v. "+
			"To see which messages are still to be read: nats consumer report %s", stream, t.Settings.Retention, stream)
	case s.Token != "" && len(t.entry.Job.After) == 0:
		t.why("Job %s was not triggered with this token, or the run is older than the ledger's retention of %v.", s.Job, t.Settings.Retention)
	case s.Range:
		t.why("No range of missed slots begins at this instant.")
	case len(t.entry.Job.After) > 0:
		return t.explainNotChained(ctx)
	case !t.entry.Job.Plan().Scheduled():
		t.why("The job has no schedule, and so no slots at instants: it starts %s.", t.entry.Job.Plan().Start())
	default:
		return t.explainNotInLedger(ctx)
	}
	return nil
}

// explainNoJob says that the job does not exist, and which job may be meant.
func (t *explainer) explainNoJob(ctx context.Context) error {
	t.why("There is no job %s in the registry.", t.story.Slot.Job)
	entries, err := t.Jobs.List(ctx)
	if err != nil && !exchange.IsUnreadable(err) {
		return err
	}
	names := codec.Map(entries, func(e plans.Entry) string { return e.Job.Name })
	if near := suggest.Nearest(t.story.Slot.Job, names); near != "" {
		t.why("Did you mean %s?", near)
	}
	return nil
}

// explainNotInLedger compares the slot with the plans of its job.
func (t *explainer) explainNotInLedger(ctx context.Context) error {
	at := t.story.Slot.At
	plans := t.entry.Plans()
	if first := plans[0].From; !at.After(first) {
		t.why("The job came into force at %s: its slots are later.", stamp(first))
		t.setNeighbours(plans[0].Plan, first)
		return nil
	}
	plan, ok := t.entry.PlanAt(at)
	if !ok {
		plan = plans[len(plans)-1]
	}
	schedule, err := job.ParseSchedule(t.entry.Job.Name, plan.Plan)
	if err != nil {
		t.why("The slots of the job's plan cannot be computed: %v.", err)
		return nil
	}
	if !schedule.Includes(at) {
		t.why("%s", t.notIncluded(plan))
		t.setNeighbours(plan.Plan, plan.From)
		return nil
	}
	due := at.Add(schedule.Delay())
	t.addDue(due)
	if t.now.Sub(at) > t.Settings.Retention {
		t.why("It is older than the ledger's retention of %v: its outcome is not kept.", t.Settings.Retention)
		return nil
	}
	if due.After(t.now) {
		t.why("It is planned, and not due before %s.", stamp(due))
		if t.entry.Paused {
			t.why("But the job is paused: none of its slots is published until it is resumed.")
		}
		return nil
	}
	return t.explainNotPublished(ctx, due)
}

// notIncluded says why a plan does not contain the slot.
func (t *explainer) notIncluded(p plans.PastPlan) string {
	name, at := t.entry.Job.Name, t.story.Slot.At
	why := fmt.Sprintf("It is not in the job's plan: schedule %q, timezone %s", p.Plan.Schedule, p.Plan.Timezone)
	if !p.To.IsZero() {
		why += fmt.Sprintf(", in force until %s", stamp(p.To))
	}
	whole := p.Plan
	switch {
	case !p.Plan.From.IsZero() && at.Before(p.Plan.From):
		return why + fmt.Sprintf("; its slots begin at %s (from).", stamp(p.Plan.From))
	case !p.Plan.Until.IsZero() && !at.Before(p.Plan.Until):
		return why + fmt.Sprintf("; its slots end before %s (until).", stamp(p.Plan.Until))
	case len(p.Plan.Exclude) > 0:
		whole.Exclude = nil
		if s, err := job.ParseSchedule(name, whole); err == nil && s.Includes(at) {
			return why + "; without its exclusions it would be."
		}
	}
	return why + "."
}

// setNeighbours sets the plan's nearest slots.
func (t *explainer) setNeighbours(p job.Plan, since time.Time) {
	s, err := job.ParseSchedule(t.entry.Job.Name, p)
	if err != nil {
		return
	}
	at := t.story.Slot.At
	if last := s.Last(since, at.Add(-time.Second), 1); len(last) > 0 {
		t.story.Before = last[0]
	}
	t.story.After = s.Next(plans.Later(since, at))
}

// explainNotPublished says why a slot that is planned and due was not published.
func (t *explainer) explainNotPublished(ctx context.Context, due time.Time) error {
	at := t.story.Slot.At
	for e, err := range t.Ledger.List(ctx, kv.ListFilter{Job: t.story.Slot.Job, Since: at.Add(-time.Minute)}) {
		t.Alive()
		if err != nil && !exchange.IsUnreadable(err) {
			return err
		}
		if err == nil && e.Slot.Range && !at.Before(e.Slot.At) && !at.After(e.Last) {
			t.story.State = e.State
			t.step(e.Finished, StepKind(e.State), e.Node, "%s, with the %d slots of %s", e.State, e.Count, e.Slot)
			t.why("It is one of %d slots that were left out together: %s. To see them: cronce slot show %s", e.Count, e.Error, e.Slot)
			return nil
		}
	}
	mark, _, err := t.Watermark.Read(ctx)
	t.Alive()
	switch {
	case err != nil && !errors.Is(err, job.ErrNotFound) && !exchange.IsUnreadable(err):
		return err
	case t.pausedAt(due):
		t.why("It became due during the job's pause, which began at %s and has not ended. When the job is resumed, its catch-up policy (%s) decides.",
			stamp(t.entry.Pauses[len(t.entry.Pauses)-1].From), t.entry.Job.WithDefaults().CatchUp.Policy)
	case err != nil || mark.Time.Before(due):
		t.why("It is due, and not published yet: %s.", t.producers(mark))
	default:
		t.why("It should exist: every slot of that time was published. Something was lost: cronce verify says more, and can publish it again.")
	}
	return nil
}

// pausedAt reports whether the current pause began before due.
func (t *explainer) pausedAt(due time.Time) bool {
	n := len(t.entry.Pauses)
	return t.entry.Paused && n > 0 && due.After(t.entry.Pauses[n-1].From)
}

// producers says why the producers have not published the slot.
func (t *explainer) producers(mark exchange.Watermark) string {
	producers := 0
	for _, ev := range t.nodes {
		if ev.Node.Producer && ev.Alive(t.now) {
			producers++
		}
	}
	switch {
	case producers == 0:
		return "no live node is a producer"
	case mark.Time.IsZero():
		return fmt.Sprintf("the %d live producers have published nothing so far", producers)
	}
	return fmt.Sprintf("%d producers are alive, and have published everything up to %s", producers, stamp(mark.Time))
}

// explainNotChained says why a job that comes after others does not have the slot: it shows
// the state of the slots that must succeed first.
func (t *explainer) explainNotChained(ctx context.Context) error {
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
	case !e.ChainedAt(last.Finished):
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
