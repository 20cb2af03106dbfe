package verify

import (
	"time"

	"github.com/cronce-io/cronce/job"
)

// serversApart is how far the clocks of a cluster's servers may be apart, which stamp
// the messages and the records.
const serversApart = 10 * time.Millisecond

// earlyBy is by how much the slot of a record, which the broker stored at written, was
// started before it was due. Zero: it was not, as far as can be seen.
func (l *line) earlyBy(r job.Record, written time.Time) time.Duration {
	due := r.Due
	if l.entry == nil || l.chain != nil || due.IsZero() {
		due = r.Slot.At // the due time of a slot that follows is that of an outcome
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

// startedBy is an instant at which the first attempt had been started: what its worker
// wrote down, or, if that is earlier, what follows from the broker's timestamp.
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
