package verify

import (
	"time"

	"github.com/cronce-io/cronce/job"
)

// serversApart bounds how far the clocks of a cluster's servers may be apart. The servers
// stamp messages and records.
const serversApart = 10 * time.Millisecond

// earlyBy returns by how much the slot of a record was started before it was due. The broker
// stored the record at written. Zero: the slot was not early, or that is not known.
func (l *timeline) earlyBy(r job.Record, written time.Time) time.Duration {
	due := r.Due
	if l.entry == nil || l.chain != nil || due.IsZero() {
		due = r.Slot.At // the due time of a slot that follows others is when the last of them succeeded
	}
	switch {
	case r.Slot.Token != "" || len(r.Attempts) == 0 || r.Attempts[0].Number != 1:
		return 0
	case !r.Published.IsZero() && !r.Published.Before(due):
		return 0
	}
	if by := due.Sub(startedBy(r, written)); by > serversApart {
		return by
	}
	return 0
}

// startedBy returns an instant by which the first attempt had been started: the start that its
// worker recorded, or an earlier instant that follows from the broker's timestamp.
func startedBy(r job.Record, written time.Time) time.Time {
	first := r.Attempts[0]
	if written.IsZero() {
		return first.Started
	}
	if ran := first.Finished.Sub(first.Started); len(r.Attempts) == 1 && ran > 0 {
		written = written.Add(-ran) // the record was stored when the attempt had ended
	}
	if written.Before(first.Started) {
		return written
	}
	return first.Started
}
