package core

import (
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// uncomputed reports whether this program cannot tell if the slot is one of the job's, because it
// cannot compute the schedule of the plan that was in force at the slot's instant. Another program
// may have computed it.
func uncomputed(d Delivery, e *plans.Entry) bool {
	if d.JobRevision >= e.Revision || d.Chained || d.Slot.Token != "" {
		return false
	}
	p, ok := e.PlanAt(d.Slot.At)
	if !ok {
		return false
	}
	_, err := job.ParseSchedule(e.Job.Name, p.Plan)
	return err != nil
}

// belongs reports whether the slot is in the plan that was in force at its instant. If the message
// was computed from this definition or a newer one, it belongs. A triggered run belongs. A chained
// slot has the instant of another job, so it belongs if its job still comes after others.
func belongs(d Delivery, e *plans.Entry) bool {
	switch {
	case d.JobRevision >= e.Revision:
		return true
	case d.Chained:
		return len(e.Job.After) > 0
	case d.Slot.Token != "":
		return true
	}
	p, ok := e.PlanAt(d.Slot.At)
	if !ok {
		return false
	}
	s, err := job.ParseSchedule(e.Job.Name, p.Plan)
	return err == nil && s.Includes(d.Slot.At)
}

// splitOtherwise reports whether the slot is in its job's plan, but the plan splits it into other
// shards. The producer of such a message lags behind an edit of the plan.
func splitOtherwise(d Delivery, e *plans.Entry) bool {
	if d.Slot.Token != "" || d.Chained || d.JobRevision >= e.Revision || !belongs(d, e) {
		return false
	}
	p, _ := e.PlanAt(d.Slot.At)
	return p.Plan.Shards != d.Slot.Shards
}

// unsplit reports whether the message is for a whole slot although its job splits slots. Its
// publisher does not support shards. If a worker ran the message, the shards could never run. If it
// acked the message and no other producer published the shards, the slot would be lost.
//
// The plan in force at a planned slot's instant applies, and for a run that a stream's message
// started, the plan in force at that message's time. A triggered or chained run by an older
// definition is valid as it is. If the message names no definition, the current one applies.
func unsplit(d Delivery, e *plans.Entry) bool {
	planned := d.Slot.Token == "" && !d.Chained
	if d.Event {
		return d.Slot.Shards == 0 && e.PlanOf(d.Due).Shards > 0
	}
	if d.Slot.Shards > 0 || !planned && 0 < d.JobRevision && d.JobRevision < e.Revision {
		return false
	}
	if p, ok := e.PlanAt(d.Slot.At); ok && planned {
		return p.Plan.Shards > 0
	}
	return e.Job.Shards > 0
}

// paused reports whether the slot fell due in a pause that its producer did not know of. If the
// producer knew of the pause, it applied the catch-up policy after the end of the pause.
func paused(d Delivery, e *plans.Entry) bool {
	if d.Slot.Token != "" && !d.Chained || d.JobRevision >= e.Revision {
		return false
	}
	w, in := e.PausedAt(d.Due)
	return in && (!d.CaughtUp || w.To.IsZero())
}
