package intake

import (
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
)

// arrangement is what to do with the consumers that were found for a job.
type arrangement struct {
	take   []planConsumer
	adopt  []planConsumer    // made by an older program: they do not name their plan
	begin  *plans.PastPlan   // next, if a consumer can be created for it now, or nil
	remove []core.OnConsumer // of plans that are not known any more
	newest int               // index of the newest plan that has a consumer, or -1
	next   *plans.PastPlan   // the first plan after that one which needs a consumer, or nil
}

// planConsumer is a consumer and the plan by which its messages start the job.
type planConsumer struct {
	consumer core.OnConsumer
	plan     plans.PastPlan
	index    int // of the plan
}

// arrange decides what to do with the consumers that were found for a job. plans are the plans by
// which messages start the job. done says of the plans that are known, by From, whether they are drained.
// Each plan has a consumer of its own. The consumers are created in the order of the plans, and a consumer
// is removed only when it is drained and, unless isSpent says otherwise, the next one exists. So the
// newest consumer shows the progress of the job: an older plan without a consumer is drained. arrange
// creates no consumer for a plan that ended before the time after.
func arrange(plans []plans.PastPlan, found []core.OnConsumer, done map[time.Time]bool, after time.Time) arrangement {
	a := arrangement{newest: -1}
	for _, c := range found {
		switch i := planOf(plans, c); {
		case i >= 0 && c.From.IsZero():
			a.adopt = append(a.adopt, planConsumer{c, plans[i], i})
			a.newest = max(a.newest, i)
		case i >= 0:
			a.take = append(a.take, planConsumer{c, plans[i], i})
			a.newest = max(a.newest, i)
		case len(plans) > 0 && c.From.After(plans[len(plans)-1].From):
			a.newest = len(plans) // of a plan that is not known here yet
		default:
			a.remove = append(a.remove, c)
		}
	}
	if a.newest < 0 && len(done) == 0 && isOver(plans) {
		return a // see jobIntake.judge
	}
	for i := a.newest + 1; i < len(plans); i++ {
		p := plans[i]
		if done[p.From] || !p.To.IsZero() && p.To.Before(after) {
			continue
		}
		a.next = &p
		if hasRoom(found, p.Plan.On.Stream) {
			a.begin = &p
		}
		return a
	}
	return a
}

// drained returns the plans without a consumer that are older than the newest plan with one. A
// plan can be drained while an older plan, whose consumer is on another stream or has the other
// name, is not.
func (a arrangement) drained(all []plans.PastPlan) (drained []plans.PastPlan) {
	for i, p := range all[:max(0, min(a.newest, len(all)))] {
		isOf := func(c planConsumer) bool { return c.index == i }
		if !slices.ContainsFunc(a.take, isOf) && !slices.ContainsFunc(a.adopt, isOf) {
			drained = append(drained, p)
		}
	}
	return drained
}

// hasRoom reports whether the job can have another consumer on the stream. There are only two
// names for its consumers. A work queue allows one consumer at a time, because it
// refuses two consumers whose subjects overlap.
func hasRoom(found []core.OnConsumer, stream string) bool {
	n := 0
	for _, c := range found {
		if c.Stream == stream {
			n++
			if c.WorkQueue {
				return false
			}
		}
	}
	return n < 2
}

// planOf returns the index of the plan that the consumer is for, or -1.
func planOf(plans []plans.PastPlan, c core.OnConsumer) int {
	for i, p := range slices.Backward(plans) {
		on := p.Plan.On
		if on.Stream == c.Stream && (p.From.Equal(c.From) || c.From.IsZero() && on.Subject == c.On.Subject) {
			return i
		}
	}
	return -1
}

// isOver reports whether messages no longer start the job, by its current plan.
func isOver(plans []plans.PastPlan) bool {
	return len(plans) == 0 || !plans[len(plans)-1].To.IsZero()
}

// isSpent reports whether the consumer of a drained plan can be removed: a newer plan has a
// consumer, or no newer plan needs one. If the next plan is on the same work queue, its consumer can
// only be created after the removal.
func (a arrangement) isSpent(c planConsumer) bool {
	return a.newest > c.index || a.next == nil || c.consumer.WorkQueue && a.next.Plan.On.Stream == c.consumer.Stream
}

// isRemovable reports whether the definition, read at the registry's leader, no longer needs the
// consumer. It needs the consumer of its current plan. A consumer of a plan that is newer than
// this definition is not removable either.
func isRemovable(e plans.Entry, c core.OnConsumer) bool {
	plans := e.OnPlans()
	i := planOf(plans, c)
	switch {
	case i >= 0:
		return !plans[i].To.IsZero()
	case len(plans) == 0:
		return true
	}
	return !c.From.After(plans[len(plans)-1].From)
}
