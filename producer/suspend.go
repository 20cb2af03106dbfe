package producer

import (
	"slices"
	"time"
)

// suspend begins or ends the suspension of a task. A suspended task's due slots stay on the
// agenda, where due does not return them. A task is suspended while the broker refuses the
// messages of its job. The outbox then has only the slots that it took before the refusal, and
// later one slot at a time (see probe). So the job takes no room from other jobs.
func (b *agenda) suspend(t *task, suspended bool) {
	if t.suspended == suspended {
		return
	}
	t.suspended = suspended
	if suspended {
		b.suspended[t] = struct{}{}
	} else {
		delete(b.suspended, t)
	}
	for _, l := range t.lines() {
		if l.group != nil {
			next := l.group.next
			b.detach(l)
			b.attach(l, next)
		}
	}
}

// probe returns the oldest due slot of a suspended task, in its parts. The catch-up policy
// decides about it together with the others, which stay on the agenda. A range goes last.
// Nil: no slot is due.
func (b *agenda) probe(t *task, now time.Time) []dueSlot {
	slots := b.judge(nil, t, now)
	if len(slots) == 0 {
		return nil
	}
	first := max(0, slices.IndexFunc(slots, func(s dueSlot) bool { return !s.Range }))
	for i, s := range slots {
		if i != first {
			b.takeBack(s)
		}
	}
	return divided(slots[first : first+1])
}
