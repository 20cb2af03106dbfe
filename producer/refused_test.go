package producer

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// refuse makes the broker refuse the slots of all jobs with the prefix.
func (b *broker) refuse(prefix string) {
	b.setAnswer(func(m core.Message) fault {
		if strings.HasPrefix(m.Slot.Job, prefix) {
			return refused
		}
		return fine
	})
}

// Jobs whose slots the broker refuses delay no other job, however many they are and however
// long it takes. When the broker accepts them again, no slot of theirs is lost.
func TestRefusedJobsNeverDelayOthers(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				start := time.Now()
				var bad []job.Job
				for i := range 20 {
					bad = append(bad, every(fmt.Sprint("refused", i), "* * * * * *", []job.CatchUpPolicy{job.CatchUpAll, job.CatchUpLatest, job.CatchUpNone}[i%3]))
					b.apply(bad[i])
				}
				b.refuse("refused")
				all := crowd(b, members, 5)
				advance(20 * time.Minute)
				b.complete(5, start, 50*time.Millisecond)
				b.take()
				advance(time.Minute)
				tries := 0
				for _, m := range b.take() {
					if strings.HasPrefix(m.Slot.Job, "refused") {
						tries++
					}
				}
				if most := 20 * members * 40; tries > most {
					t.Errorf("%d publications in a minute of 20 jobs that are refused, by %d producers; want at most %d", tries, members, most)
				}
				if wm := b.watermark(); wm.Time.After(start.Add(time.Second)) {
					t.Errorf("the watermark %v vouches for slots that are not stored", wm.Time)
				}
				b.setAnswer(nil)
				advance(30 * time.Second)
				for _, def := range bad {
					stored := b.has(def.Name)
					if ranges := b.ranges(def.Name); len(stored) < 1260 || len(ranges) == 0 {
						t.Errorf("%s: %d slots are stored, with %d ranges", def.Name, len(stored), len(ranges))
					}
				}
				if wm := b.watermark(); time.Since(wm.Time) > 3*time.Second {
					t.Errorf("the watermark is at %v, and nothing is refused any more", wm.Time)
				}
				stopAll(all)
			})
		})
	}
}

// The outbox of a refused job does not grow, and neither does the rate of its attempts.
func TestRefusedJobKeepsItsSlotsOnTheAgenda(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fleet.peers = map[string]*peer{}
	d.review()
	e := plans.Entry{Revision: 1, Time: epoch}
	e.Job = every("a", "* * * * * *", job.CatchUpAll)
	d.agenda.apply(plans.RegistryEvent{Name: "a", Revision: 1, Entry: e}, epoch)
	hand := func(now time.Time) int {
		slots, _ := d.agenda.due(nil, now, maxChunk)
		d.add(divided(slots), now)
		return len(slots)
	}
	if n := hand(epoch.Add(2 * time.Second)); n != 2 {
		t.Fatalf("%d slots in two seconds", n)
	}
	for _, answer := range d.reply {
		answer(false, errAway)
	}
	d.takeAnswers()
	backlog := d.backlogs[d.agenda.jobs["a"]]
	if n := hand(epoch.Add(time.Hour)); n != 0 || len(backlog.waiting) != 2 {
		t.Errorf("%d slots more of a job that is refused, %d wait", n, len(backlog.waiting))
	}
	backlog.retryAt = time.Time{}
	d.retryDue(epoch.Add(time.Hour)) // they are late: the whole job is judged again
	if d.unacked != 1 || len(backlog.waiting) != 1 {
		t.Errorf("%d slots are in the outbox, %d of them wait; want one to try", d.unacked, len(backlog.waiting))
	}
	if _, ok := d.advance(); ok {
		t.Error("a position may be offered")
	}
	d.reply = nil
	backlog.retryAt = time.Time{}
	d.retryDue(epoch.Add(time.Hour))
	d.mark(d.agenda.position(epoch.Add(time.Hour)))
	d.acknowledge()
	if until, _, ok := d.announceable(); ok && until.Equal(epoch.Add(time.Hour)) {
		t.Error("it announces slots that are on the agenda again")
	}
	if pos, ok := d.advance(); ok {
		t.Errorf("%v may be offered, with slots of an hour on the agenda", pos.time)
	}
	if n := hand(epoch.Add(time.Hour)); n != 100+61+1 {
		t.Errorf("%d slots and ranges of an hour follow the one that was taken, want 162", n)
	}
}
