package producer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// The answer to the first heartbeat was delayed by so much. The node estimates that the
// broker is ahead by half of that, and knows the error. No slot is published before its
// instant.
func TestNoSlotIsPublishedEarlyAfterASlowFirstHeartbeat(t *testing.T) {
	t.Parallel()
	for _, held := range []time.Duration{300 * time.Millisecond, 4 * time.Second, 8 * time.Second} {
		t.Run(held.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				def := every("a", "* * * * * *", job.CatchUpAll)
				start := time.Now()
				b.apply(def)
				p := b.start(func(_ *Config, v *view) { v.offset, v.error = held/2, held/2 })
				advance(20*time.Second + 500*time.Millisecond)
				p.stop()
				for id, m := range b.messages() {
					if early := m.Due.Sub(b.storedAt[id]); early > 0 {
						t.Errorf("%s was stored %v before it was due", id, early)
					}
				}
				b.wantAll("a", slots(t, def, start, time.Now()))
			})
		})
	}
}

func TestAProducerAsksTheOthersOnlyOnceItsClockIsPlausible(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.apply(every("a", "* * * * * *", job.CatchUpAll))
		p := b.member(func(_ *Config, v *view) { v.offset = 48 * time.Hour })
		advance(10 * time.Second)
		if n := b.announcements(); n > 0 {
			t.Errorf("%d announcements of a producer whose clock is implausible", n)
		}
		asked := false
		stop, _ := (&view{broker: b}).Listen(func(a exchange.Announcement) { asked = asked || a.Kind == exchange.AnnounceAsk })
		p.step(-48 * time.Hour)
		advance(reconnectPoll + 10*time.Millisecond)
		if p.stop(); !asked {
			t.Error("it did not ask the others when its clock was right")
		}
		stop()
	})
}

// A producer whose clock becomes implausible announces once that it leaves, and then nothing.
// It asks its peers to announce themselves when the clock is right again.
func TestProducersWhoseClockIsImplausibleAnnounceNothing(t *testing.T) {
	t.Parallel()
	for _, doubting := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(t)
			all := crowd(b, 4, 5)
			b.announcements()
			for _, p := range all[:doubting] {
				p.step(48 * time.Hour)
			}
			advance(10 * time.Second)
			// The other producers announce themselves a few times a second, when their
			// slots fall due.
			usual := (len(all) - doubting) * 10 * 4
			if n := b.announcements(); n > usual {
				t.Errorf("%d announcements in ten seconds, with %d of four clocks wrong; want at most %d", n, doubting, usual)
			}
			for _, p := range all[doubting:] {
				p.stop()
			}
			advance(time.Second)
			b.announcements()
			advance(10 * time.Second)
			if n := b.announcements(); n > 0 {
				t.Errorf("%d announcements of producers that do not believe the clock", n)
			}
			for _, p := range all[:doubting] {
				p.step(-48 * time.Hour)
			}
			advance(reconnectPoll + 10*time.Millisecond)
			if n := b.announcements(); n < doubting || n > 4*doubting {
				t.Errorf("%d announcements of %d producers whose clock is right again", n, doubting)
			}
			stopAll(all[:doubting])
		})
	}
}
