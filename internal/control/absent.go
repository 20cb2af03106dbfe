package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/suggest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// absent says why there is neither a record nor a message of the slot: the first
// reason that fits, from the outside in.
func (t *teller) absent(ctx context.Context) error {
	s, retention := t.story.Slot, t.cfg.Settings.Retention
	t.told()
	switch {
	case t.broken != nil:
		t.story.Why = fmt.Sprintf("The definition of job %s cannot be read, so the job is disabled: %v.", s.Job, t.broken)
	case t.lock.Has(s):
		t.story.State = job.Pending
		t.story.Why = "It stands in its job's lock, and its message is gone. If no worker has it in hand, then within two minutes of its turn the fleet " +
			"offers it again, or ends it if it was triggered, since its payload is gone too. cronce slot cancel ends it now."
	case t.entry == nil:
		return t.unknown(ctx)
	case s.Token != "" && !t.entry.Job.On.IsZero():
		on := t.entry.Job.On
		t.story.Why = fmt.Sprintf("No message of stream %s with this ID, or this sequence, has started the job, nor has anybody triggered it so; or longer ago than the ledger's retention of %v. "+
			"What is yet to be taken: nats consumer report %s", on.Stream, retention, on.Stream)
	case s.Token != "" && len(t.entry.Job.After) == 0:
		t.story.Why = fmt.Sprintf("Nobody has triggered job %s with this token, or longer ago than the ledger's retention of %v.", s.Job, retention)
	case s.Range:
		t.story.Why = "No range of missed slots begins there."
	case len(t.entry.Job.After) > 0:
		return t.unchained(ctx)
	case t.entry.Job.Schedule == "":
		t.story.Why = fmt.Sprintf("The job has no slots at instants: it starts %s.", t.entry.Job.Plan().Start())
	default:
		return t.unplanned(ctx)
	}
	return nil
}

// unknown says that there is no such job, and which one may be meant.
func (t *teller) unknown(ctx context.Context) error {
	t.story.Why = fmt.Sprintf("There is no job %s in the registry.", t.story.Slot.Job)
	entries, err := t.cfg.Jobs.List(ctx)
	if err != nil && !unreadable(err) {
		return err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Job.Name)
	}
	if near := suggest.Nearest(t.story.Slot.Job, names); near != "" {
		t.story.Why += fmt.Sprintf(" Is %s meant?", near)
	}
	return nil
}

// unplanned looks into the job's plans.
func (t *teller) unplanned(ctx context.Context) error {
	at := t.story.Slot.At
	plans := t.entry.Plans()
	if first := plans[0].From; !at.After(first) {
		t.story.Why = fmt.Sprintf("The job came into force at %s: its slots are later.", stamp(first))
		t.near(plans[0].Plan, first)
		return nil
	}
	plan := plans[len(plans)-1]
	for _, p := range plans {
		if at.After(p.From) && (p.To.IsZero() || !at.After(p.To)) {
			plan = p
		}
	}
	schedule, err := job.ParseSchedule(t.entry.Job.Name, plan.Plan)
	if err != nil {
		t.story.Why = fmt.Sprintf("The job's plan cannot be computed: %v.", err)
		return nil
	}
	if !schedule.Includes(at) {
		t.story.Why = t.notIncluded(plan)
		t.near(plan.Plan, plan.From)
		return nil
	}
	due := at.Add(schedule.Delay())
	t.due(due)
	if retention := t.cfg.Settings.Retention; t.now.Sub(at) > retention {
		t.story.Why = fmt.Sprintf("It is older than the ledger's retention of %v: what became of it is not kept.", retention)
		return nil
	}
	if due.After(t.now) {
		t.story.Why = fmt.Sprintf("It is planned, and not due before %s.", stamp(due))
		if t.entry.Paused {
			t.story.Why += " But the job is paused: nothing of it is published until it is resumed."
		}
		return nil
	}
	return t.unpublished(ctx, due)
}

func (t *teller) notIncluded(p core.PastPlan) string {
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
			return why + "; but for its exclusions it would be."
		}
	}
	return why + "."
}

// near finds the nearest slots of the plan.
func (t *teller) near(p job.Plan, since time.Time) {
	s, err := job.ParseSchedule(t.entry.Job.Name, p)
	if err != nil {
		return
	}
	at := t.story.Slot.At
	if last := s.Last(since, at.Add(-time.Second), 1); len(last) > 0 {
		t.story.Before = last[0]
	}
	after := at
	if since.After(at) {
		after = since
	}
	t.story.After = s.Next(after)
}

// unpublished says why a slot that is planned and due was not published.
func (t *teller) unpublished(ctx context.Context, due time.Time) error {
	at := t.story.Slot.At
	for e, err := range t.cfg.Ledger.List(ctx, kv.ListFilter{Job: t.story.Slot.Job, Since: at.Add(-time.Minute)}) {
		t.cfg.Alive()
		if err != nil && !unreadable(err) {
			return err
		}
		if err == nil && e.Slot.Range && !at.Before(e.Slot.At) && !at.After(e.Last) {
			t.story.State = e.State
			t.step(e.Finished, StepKind(e.State), e.Node, "%s, with the %d slots of %s", e.State, e.Count, e.Slot)
			t.story.Why = fmt.Sprintf("It is one of %d slots that were left out together: %s. cronce slot show %s", e.Count, e.Error, e.Slot)
			return nil
		}
	}
	mark, _, err := t.cfg.Watermark.Read(ctx)
	t.cfg.Alive()
	switch {
	case err != nil && !errors.Is(err, job.ErrNotFound) && !unreadable(err):
		return err
	case t.pausedAt(due):
		t.story.Why = fmt.Sprintf("It fell due while the job is paused, since %s: when that is resumed, its catch-up policy (%s) decides.",
			stamp(t.entry.Pauses[len(t.entry.Pauses)-1].From), t.entry.Job.WithDefaults().CatchUp.Policy)
	case err != nil || mark.Time.Before(due):
		t.story.Why = fmt.Sprintf("It is due, and not published yet: %s.", t.producers(mark))
	default:
		t.story.Why = "It should be there: every slot of that time was published. Something was lost: cronce verify says more, and can offer it again."
	}
	return nil
}

// pausedAt reports whether the pause that lasts had begun then.
func (t *teller) pausedAt(due time.Time) bool {
	n := len(t.entry.Pauses)
	return t.entry.Paused && n > 0 && due.After(t.entry.Pauses[n-1].From)
}

// producers says what keeps slots from being published.
func (t *teller) producers(mark core.Watermark) string {
	producers := 0
	for _, ev := range t.nodes {
		if ev.Err == nil && ev.Node.Producer && t.alive(ev) {
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

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
