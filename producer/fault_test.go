package producer

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

func TestSuspendIsJudgedAfterwards(t *testing.T) {
	t.Parallel()
	for _, tt := range policies {
		t.Run(string(tt.policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				def := every("a", "*/15 * * * * *", tt.policy)
				def.CatchUp.Max = tt.max
				start := time.Now()
				b.apply(def)
				p := b.start()
				advance(time.Minute + 500*time.Millisecond)
				slept, thaw := time.Now(), p.freeze()
				advance(10 * time.Minute)
				want := merge(run(slots(t, def, start, slept)), judged(t, def, slept, tt.runs))
				thaw()
				advance(5 * time.Second)
				b.want("a", want)
				p.stop()
			})
		})
	}
}

func TestProducerThatWasGoneDoesNotJudgeWhatItsPeersPublished(t *testing.T) {
	t.Parallel()
	for name, vanish := range map[string]func(*view) func(){"suspended": (*view).freeze, "cut off": (*view).cutOff} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				def := every("a", "*/15 * * * * *", job.CatchUpAll)
				start := time.Now()
				b.apply(def)
				p, peer := b.start(), b.start()
				advance(time.Minute)
				back := vanish(p.view)
				advance(10*time.Minute + 500*time.Millisecond)
				back()
				advance(5 * time.Second)
				for _, m := range b.take() {
					if m.Missed > 0 || m.CaughtUp {
						t.Errorf("%s was judged late", m.Slot)
					}
				}
				b.wantAll("a", slots(t, def, start, time.Now()))
				p.stop()
				peer.stop()
			})
		})
	}
}

func TestBrokerAwayForFiveMinutes(t *testing.T) {
	t.Parallel()
	for _, tt := range policies {
		t.Run(string(tt.policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				def := every("a", "*/10 * * * * *", tt.policy)
				def.CatchUp.Max = tt.max
				start := time.Now()
				b.apply(def)
				p := b.start()
				advance(time.Minute + 500*time.Millisecond)
				gone := time.Now()
				b.setAway(true)
				b.take()
				advance(5 * time.Minute)
				if n := len(b.take()); n > 1 {
					t.Errorf("%d publications while there was no connection", n)
				}
				// A liveness probe must not conclude that the loop hangs.
				if still := time.Since(p.Stats().Turned); still > 2*maxSleep {
					t.Errorf("its loop stood still for %v without a broker", still)
				}
				want := merge(run(slots(t, def, start, gone)), judged(t, def, gone, tt.runs))
				b.setAway(false)
				advance(5 * time.Second)
				b.want("a", want)
				p.stop()
			})
		})
	}
}

// The connection stays, and every publication fails. Slots that became late meanwhile are
// judged as late.
func TestRefusedSlotsAreJudgedAgainWhenTheyTurnLate(t *testing.T) {
	t.Parallel()
	for _, tt := range policies {
		t.Run(string(tt.policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				b.setAnswer(func(core.Message) fault { return refused })
				def := every("a", "*/20 * * * * *", tt.policy)
				def.CatchUp.Max = tt.max
				start := time.Now()
				b.apply(def)
				p := b.start()
				advance(4*time.Minute + 10*time.Second + 500*time.Millisecond)
				b.setAnswer(nil)
				advance(10 * time.Second)
				p.stop()
				now := time.Now().Add(-10 * time.Second)
				runs, missed := 0, 0
				has := b.has("a")
				for id, is := range has {
					slot, err := job.ParseSlotID(id)
					if err != nil {
						t.Fatal(err)
					}
					late := now.Sub(slot.At) > plans.LateAfter
					switch {
					case is == "missed" && late:
						missed++
					case is == "caught up" && late:
						runs++
					case is != "run" || now.Sub(slot.At) > plans.LateAfter+5*time.Second:
						t.Errorf("%s is %q", id, is)
					}
				}
				n := len(slots(t, def, start, now.Add(-plans.LateAfter-5*time.Second)))
				if want := min(tt.runs, n); runs != want && runs != want+1 {
					t.Errorf("%d caught up, want %d", runs, want)
				}
				if len(has) != len(slots(t, def, start, time.Now())) {
					t.Errorf("%d slots stored", len(has))
				}
			})
		})
	}
}

func TestJobThatCannotBePublishedDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.setAnswer(func(m core.Message) fault {
			if m.Slot.Job == "stuck" {
				return refused
			}
			return fine
		})
		start := time.Now()
		def := every("good", "* * * * * *", "")
		b.apply(def)
		b.apply(every("stuck", "* * * * * *", job.CatchUpAll))
		p := b.start()
		advance(20*time.Minute + 500*time.Millisecond)
		b.wantAll("good", slots(t, def, start, time.Now()))
		if wm := b.watermark(); wm.Time.After(start.Add(time.Second)) {
			t.Errorf("watermark %v covers slots that are not stored", wm.Time)
		}
		p.stop()
	})
}

func TestUnansweredPublicationIsRepeatedUntilItIsStored(t *testing.T) {
	t.Parallel()
	for _, f := range []fault{refused, lost, inflight, silence} {
		t.Run(fmt.Sprint("fault ", f), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				tries := map[string]int{}
				b.setAnswer(func(m core.Message) fault {
					if tries[m.Slot.ID()]++; tries[m.Slot.ID()] <= 2 {
						return f
					}
					return fine
				})
				def := every("a", "*/10 * * * * *", "")
				start := time.Now()
				b.apply(def)
				p := b.start()
				advance(time.Minute)
				end := time.Now()
				advance(50 * time.Second)
				p.stop()
				has := b.has("a")
				for _, id := range slots(t, def, start, end) {
					if has[id] != "run" || tries[id] < 3 {
						t.Errorf("%s is %q after %d tries", id, has[id], tries[id])
					}
				}
				if p.Stats().Retried == 0 {
					t.Error("no retry was counted")
				}
			})
		})
	}
}

func TestBrokenDefinitionDisablesItsJobOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def, bad := every("good", "* * * * * *", ""), every("bad", "* * * * * *", "")
		start := time.Now()
		b.apply(def)
		b.apply(bad)
		p := b.start()
		advance(5*time.Second + 500*time.Millisecond)
		b.garble("bad", fmt.Errorf("%w: not JSON", job.ErrInvalid))
		broken := time.Now()
		advance(5 * time.Second)
		b.wantAll("bad", slots(t, bad, start, broken))
		b.wantAll("good", slots(t, def, start, time.Now()))
		if wm := b.watermark(); time.Since(wm.Time) > 3*time.Second {
			t.Errorf("watermark %v is held up by a definition that no program can read", wm.Time)
		}
		b.garble("bad", fmt.Errorf("bad: %w", job.ErrVersion))
		held := time.Now()
		advance(10 * time.Second)
		b.wantAll("good", slots(t, def, start, time.Now()))
		if wm := b.watermark(); wm.Time.After(held.Add(time.Second)) {
			t.Errorf("watermark %v moved past a definition that only newer nodes can read", wm.Time)
		}
		b.delete("bad")
		advance(5 * time.Second)
		if wm := b.watermark(); time.Since(wm.Time) > 3*time.Second {
			t.Errorf("watermark %v is held up by a job that was removed", wm.Time)
		}
		p.stop()
	})
}

func TestClockThatStepsBackNeitherStopsNorPublishesTheFuture(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def := every("a", "*/5 * * * * *", "")
		start := time.Now()
		b.apply(def)
		fast := func(_ *Config, v *view) { v.offset = time.Minute }
		p := b.start(fast) // runs a minute ahead until it is corrected
		advance(30*time.Second + 500*time.Millisecond)
		ahead := p.Now()
		p.step(-time.Minute)
		fresh := every("new", "*/5 * * * * *", "")
		e := b.apply(fresh)
		for range 20 {
			advance(10 * time.Second)
			for id, m := range b.messages() {
				if m.Due.After(time.Now()) && m.Due.After(ahead) {
					t.Errorf("%s is stored %v before its due time", id, time.Until(m.Due))
				}
			}
			if len(b.has("new")) != len(slots(t, fresh, e.Time, time.Now())) {
				t.Errorf("%d slots of the new job at %v", len(b.has("new")), time.Now())
			}
		}
		p.stop()
		b.wantAll("a", slots(t, def, start, time.Now()))
		b.wantAll("new", slots(t, fresh, e.Time, time.Now()))
	})
}

func TestClockThatStepsForwardLosesNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def := every("a", "*/5 * * * * *", "")
		start := time.Now()
		b.apply(def)
		p := b.start(func(_ *Config, v *view) { v.offset = -30 * time.Second })
		advance(time.Minute)
		p.step(30 * time.Second)
		advance(1500 * time.Millisecond)
		p.stop()
		b.wantAll("a", slots(t, def, start, time.Now()))
	})
}

// The broker's clock jumps ten years ahead. No producer publishes by it or moves the
// watermark there, however long it has been running.
func TestImplausibleClockPublishesAndClaimsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def := every("a", "*/5 * * * * *", "")
		start := time.Now()
		b.apply(def)
		p := b.start()
		advance(time.Minute)
		p.step(10 * 365 * 24 * time.Hour)
		advance(10 * time.Second)
		if wm := b.watermark().Time; wm.After(time.Now()) {
			t.Errorf("the watermark was carried to %v", wm)
		}
		p.step(-10 * 365 * 24 * time.Hour)
		advance(61500 * time.Millisecond)
		p.stop()
		b.wantAll("a", slots(t, def, start, time.Now()))
	})
}

func TestRunEndsWhenTheRegistryCannotBeWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		gone := errors.New("stream not found")
		p := b.start(func(c *Config, _ *view) { c.Registry = brokenRegistry{gone} })
		if err := <-p.done; !errors.Is(err, gone) {
			t.Errorf("Run = %v, want %v", err, gone)
		}
	})
}
