package producer

import (
	"slices"
	"time"
)

// hold keeps a task's slots on the board, although they fall due, or lets them go again.
// A job that the broker refuses thus has in the outbox what was handed out before the
// refusal, and then one slot at a time, and takes no room that others need.
func (b *board) hold(t *task, held bool) {
	if t.held == held {
		return
	}
	t.held = held
	if held {
		b.held[t] = struct{}{}
	} else {
		delete(b.held, t)
	}
	for _, l := range t.lines() {
		if l.group != nil {
			next := l.group.next
			b.leave(l)
			b.join(l, next)
		}
	}
}

// probe hands out the oldest of the slots of a held task that are due at now, in its
// parts, judged with all the others, which stay on the board. A range is not the first to
// go. Nil: no slot is due.
func (b *board) probe(t *task, now time.Time) []dueSlot {
	slots := b.judge(nil, t, now)
	if len(slots) == 0 {
		return nil
	}
	first := max(0, slices.IndexFunc(slots, func(s dueSlot) bool { return !s.Range }))
	for i, s := range slots {
		if i != first {
			b.back(s)
		}
	}
	return divided(slots[first : first+1])
}
