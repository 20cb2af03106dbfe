package consumer

import (
	"time"

	"github.com/cronce-io/cronce/job"
)

// Observer is told what happens here, for whoever measures it. Its methods must
// not block, and are called from many goroutines at once.
type Observer interface {
	// Started is told of each handler that is about to start, so much after its
	// slot was due. planned is false when it is late by nature: a further attempt,
	// a slot that was caught up or filled in, a run without a time of its own.
	Started(queue string, late time.Duration, planned bool)

	// Returned is told that it has returned, after so long.
	Returned(queue string, took time.Duration)

	// Parked is told of slots that wait here for their turn in their job's lock:
	// 1 when one begins to, -1 when it ends.
	Parked(queue string, by int)
}

// nobody measures nothing.
type nobody struct{}

func (nobody) Started(string, time.Duration, bool) {}
func (nobody) Returned(string, time.Duration)      {}
func (nobody) Parked(string, int)                  {}

// started tells of the handler of a record's last attempt.
func (t *task) started(rec job.Record) {
	if t.cfg.Observer == (nobody{}) {
		return
	}
	planned := rec.Attempt == 1 && rec.Slot.Token == "" && !t.d.CaughtUp && !t.d.Backfill
	t.cfg.Observer.Started(t.cfg.Queue, t.cfg.Now().Sub(rec.Due), planned)
}
