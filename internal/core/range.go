package core

import (
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
)

// Rest returns the delivery of what is left of a range: its slots after the instant until, by the
// job's definition. It returns false if nothing is left. Producers that judge late slots at
// different moments publish ranges that overlap, and a producer that died may have published the
// first slots of a range one by one. So a worker records a range from the first slot that no record
// covers yet.
func (d Delivery) Rest(e plans.Entry, until time.Time) (Delivery, bool) {
	missed := 0
	for at := range e.Slots(until, d.MissedLast) {
		if missed++; missed == 1 {
			d.Slot.At = at
		}
	}
	d.Missed = min(d.Missed, missed)
	return d, missed > 0
}
