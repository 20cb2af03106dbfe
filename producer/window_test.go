package producer

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// flood moves due slots to the outbox while there is room, answers all that is in flight
// after the given time, and repeats that. It returns the most that were in flight. An error
// is the answer to the first ones.
func (d *desk) flood(now time.Time, took time.Duration, err error) (most int) {
	done := false
	for range 1000 {
		if done && d.inFlight == 0 {
			return most
		}
		for !done && d.room() >= maxChunk {
			var slots []dueSlot
			slots, done = d.agenda.due(nil, now, maxChunk)
			d.add(slots, now)
			most = max(most, d.inFlight)
		}
		time.Sleep(took)
		for _, answer := range d.reply {
			answer(false, err)
		}
		d.reply = nil
		d.takeAnswers()
		if err != nil {
			d.returnToAgenda(nil)
			return most
		}
	}
	d.t.Fatalf("%d slots are in flight, and not all slots were taken off the agenda, with a window of %d", d.inFlight, d.window)
	return most
}

// A broker that answers soon gets as many publications at a time as the window allows. A
// slow one, or one that refuses some, gets fewer, but always at least a chunk.
func TestTheWindowFitsTheBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.peer.silent = true
		d.review() // this producer is alone
		for i := range 80_000 {
			e := plans.Entry{Revision: uint64(i + 1), Time: epoch}
			e.Job = job.Job{Name: fmt.Sprint("job", i), Schedule: "* * * * * *"}
			d.agenda.apply(plans.RegistryEvent{Name: e.Job.Name, Revision: e.Revision, Entry: e}, epoch)
		}
		const nearly = 2 * maxChunk // room for less than a chunk stays empty
		now := epoch
		for _, step := range []struct {
			broker string
			took   time.Duration
			most   int // in flight
			window int // afterwards
		}{
			{"of which nothing is known", time.Second, firstInFlight, firstInFlight},
			{"that answers soon", time.Millisecond, maxInFlight, maxInFlight},
			{"that has become slow", 3 * time.Second, maxInFlight, leastInFlight},
			{"that is still slow", 3 * time.Second, leastInFlight, leastInFlight},
			{"that answers soon again", time.Millisecond, maxInFlight, maxInFlight},
		} {
			now = now.Add(time.Second)
			if n := d.flood(now, step.took, nil); n > step.most || n <= step.most-nearly || d.window != step.window {
				t.Errorf("a broker %s: %d in flight, then a window of %d; want about %d, then %d", step.broker, n, d.window, step.most, step.window)
			}
		}
		if n := d.flood(now.Add(time.Second), time.Millisecond, errors.New("too many requests")); d.window != max(maxInFlight-n, leastInFlight) {
			t.Errorf("a window of %d became one of %d when %d were refused", maxInFlight, d.window, n)
		}
	})
}
