package producer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// missed returns what becomes of the slots of a pause, given oldest first: the policy
// decides about the last ones.
func missed(ids []string, runs int) map[string]string {
	want := map[string]string{}
	for i, id := range ids {
		want[id] = "missed"
		if i >= len(ids)-runs {
			want[id] = "caught up"
		}
	}
	return want
}

func TestSlotsOfAPauseAreMissedHoweverShortItWas(t *testing.T) {
	t.Parallel()
	for _, tt := range policies {
		for _, length := range []time.Duration{10 * time.Second, 5 * time.Minute} {
			t.Run(fmt.Sprint(tt.policy, tt.max, " ", length), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newBroker(t)
					def := every("a", "*/3 * * * * *", tt.policy)
					def.CatchUp.Max = tt.max
					start := b.apply(def).Time
					p := b.start()
					defer p.stop()
					advance(30*time.Second + 500*time.Millisecond)
					paused := b.pause("a").Time
					want := run(slots(t, def, start, paused))
					advance(length)
					b.want("a", want)
					resumed := b.resume("a").Time
					advance(time.Second)
					want = merge(want, missed(slots(t, def, paused, resumed), tt.runs))
					b.want("a", merge(want, run(slots(t, def, resumed, time.Now()))))
					advance(time.Minute)
					b.want("a", merge(want, run(slots(t, def, resumed, time.Now()))))
				})
			})
		}
	}
}

// The producers that ran when the pause began or ended may be dead. A producer that starts
// still publishes what fell due in it.
func TestACrashAroundAPauseOrItsEndLosesNoSlot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                 string
		atPause, whilePaused bool // a producer runs then
		atResume             bool
	}{
		{"no producer knows of it", false, false, false},
		{"of the pause", true, false, false},
		{"during the pause", false, true, false},
		{"of the end, and dies at once", true, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				def := every("a", "*/7 * * * * *", job.CatchUpLatest)
				b.apply(every("other", "* * * * * *", ""))
				start := b.apply(def).Time
				p := b.start()
				advance(20*time.Second + 500*time.Millisecond)
				if !tt.atPause {
					p.stop()
				}
				paused := b.pause("a").Time
				if tt.atPause {
					advance(300 * time.Millisecond)
					p.stop()
				}
				if tt.whilePaused {
					p = b.start()
					advance(40 * time.Second)
					p.stop()
				} else {
					advance(40 * time.Second)
				}
				if tt.atResume {
					p = b.start()
					advance(3 * time.Second)
					b.setAnswer(func(core.Message) fault { return refused })
				}
				resumed := b.resume("a").Time
				if tt.atResume {
					advance(1100 * time.Millisecond)
					p.stop()
					b.setAnswer(nil)
				}
				p = b.start()
				defer p.stop()
				advance(10 * time.Second)
				b.want("a", merge(run(slots(t, def, start, paused)), missed(slots(t, def, paused, resumed), 1),
					run(slots(t, def, resumed, time.Now()))))
			})
		})
	}
}

// A slot that fell due before its job was paused or removed is published, however long that
// takes.
func TestWhatFellDueBeforeAPauseOrARemovalIsPublishedInTheEnd(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(*broker) time.Time{
		"paused":  func(b *broker) time.Time { return b.pause("a").Time },
		"removed": func(b *broker) time.Time { b.delete("a"); return time.Now() },
		"removed and created again": func(b *broker) time.Time {
			b.delete("a")
			at := time.Now()
			advance(time.Hour)
			b.apply(every("a", "@yearly", ""))
			return at
		},
		"made unreadable": func(b *broker) time.Time { b.garble("a", job.ErrInvalid); return time.Now() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				def := every("a", "*/10 * * * * *", job.CatchUpAll)
				start := b.apply(def).Time
				p := b.start()
				defer p.stop()
				advance(10*time.Second + 500*time.Millisecond)
				b.setAnswer(func(core.Message) fault { return refused })
				advance(20 * time.Second)
				at := gone(b)
				advance(5 * time.Minute)
				mark := b.watermark().Time
				b.setAnswer(nil)
				advance(30 * time.Second)
				has := b.has("a")
				want := slots(t, def, start, at)
				for _, id := range want {
					if has[id] != "run" && has[id] != "caught up" {
						t.Errorf("%s is %q, want it to run", id, has[id])
					}
				}
				if len(has) != len(want) {
					t.Errorf("%d messages, want %d: %v", len(has), len(want), has)
				}
				if mark.After(start.Add(20 * time.Second)) {
					t.Errorf("the watermark was moved to %v while slots were not acknowledged", mark)
				}
				if now := b.watermark().Time; !now.After(at) {
					t.Errorf("the watermark is at %v", now)
				}
			})
		})
	}
}

func TestRemovedJobsHaveNoSlotsUntilTheyAreCreatedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def := every("a", "* * * * * *", "")
		start := b.apply(def).Time
		p := b.start()
		advance(5*time.Second + 500*time.Millisecond)
		b.delete("a")
		want := slots(t, def, start, time.Now())
		advance(10 * time.Second)
		b.wantAll("a", want)
		again := b.apply(def)
		advance(5 * time.Second)
		b.wantAll("a", append(want, slots(t, def, again.Time, time.Now())...))
		p.stop()
	})
}

// A slot falls due at its instant plus the spread. That time decides whether it falls into
// the pause.
func TestPauseCoversSlotsByTheirDueTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def := every("a", "*/10 * * * * *", job.CatchUpNone)
		def.Spread = time.Minute
		s, err := job.ParseSchedule(def.Name, def.Plan())
		if err != nil || s.Delay() == 0 {
			t.Fatalf("delay %v: %v", s.Delay(), err)
		}
		start := b.apply(def).Time
		p := b.start()
		defer p.stop()
		advance(2*time.Minute + 500*time.Millisecond)
		paused := b.pause("a").Time
		advance(20 * time.Second)
		resumed := b.resume("a").Time
		advance(time.Minute)
		b.want("a", merge(run(slots(t, def, start, paused.Add(-s.Delay()))),
			missed(slots(t, def, paused.Add(-s.Delay()), resumed.Add(-s.Delay())), 0),
			run(slots(t, def, resumed.Add(-s.Delay()), time.Now().Add(-s.Delay())))))
	})
}
