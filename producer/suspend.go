package producer

import (
	"slices"
	"time"
)

// suspend begins or ends the suspension of a job. A suspended job's due slots stay on the
// agenda: due does not return them. A job is suspended while its publications fail. The outbox
// then has only the slots that it took before the failure, and later one slot at a time (see
// probe). So the job takes no room from other jobs.
func (a *agenda) suspend(j *plannedJob, suspended bool) {
	if j.suspended == suspended {
		return
	}
	j.suspended = suspended
	if suspended {
		a.suspended[j] = struct{}{}
	} else {
		delete(a.suspended, j)
	}
	for _, l := range j.lines() {
		if l.group != nil {
			next := l.group.next
			a.detach(l)
			a.attach(l, next)
		}
	}
}

// probe returns the oldest due slot of a suspended job, in its shards. The catch-up policy
// decides about it together with the others, which stay on the agenda. A range goes last.
// Nil: no slot is due.
func (a *agenda) probe(j *plannedJob, now time.Time) []dueSlot {
	slots := a.judge(nil, j, now)
	if len(slots) == 0 {
		return nil
	}
	first := max(0, slices.IndexFunc(slots, func(s dueSlot) bool { return !s.isRange() }))
	for i, s := range slots {
		if i != first {
			a.takeBack(s)
		}
	}
	return divided(slots[first : first+1])
}

// unsuspend ends the suspension of a job. Its slots are still on the agenda, so marks that
// were made without them are void.
func (o *outbox) unsuspend(j *plannedJob) {
	if !j.suspended {
		return
	}
	o.agenda.suspend(j, false)
	o.marks = slices.DeleteFunc(o.marks, func(m mark) bool { return m.partial })
	if o.passed.partial {
		o.passed = o.offered
	}
}

// returnToAgenda returns undone slots to the agenda: those of job j, or of all jobs if j is nil.
// The agenda decides about them again when they are due. All marks are deleted, since their
// positions cover slots that are on the agenda again. If the slots of one job return, the job
// keeps its backoff: it goes on with one attempt at a time.
func (o *outbox) returnToAgenda(j *plannedJob) {
	for _, it := range o.items {
		switch {
		case it.state == onStandby:
			o.returnBatch(it.batch, j)
		case it.state != done && (j == nil || it.line.job == j):
			it.state = done
			o.unacked--
			o.agenda.takeBack(it.dueSlot)
		}
	}
	for _, p := range o.fleet.peers {
		p.standby = slices.DeleteFunc(p.standby, (*batch).isEmpty)
	}
	o.marks = nil
	if j == nil {
		for other := range o.agenda.suspended {
			o.unsuspend(other)
		}
		clear(o.backlogs)
		clear(o.parked)
	} else if backlog := o.backlogs[j]; backlog != nil {
		backlog.items, backlog.ranges, backlog.waiting, backlog.probe = 0, nil, nil, nil
	}
}
