package producer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// faulty returns random faults from a fixed seed.
func faulty(seed uint64) func(core.Message) fault {
	r := rand.New(rand.NewPCG(seed, 1))
	return func(core.Message) fault {
		if r.IntN(3) > 0 {
			return fine
		}
		return fault(r.IntN(int(silence) + 1))
	}
}

// unstored returns a slot that the watermark covers and that is not stored; empty if there
// is none. The watermark covers the slots of the plans and pauses that it knows, by the
// present registry. The caller holds the broker's lock.
func (b *broker) unstored(wm exchange.Watermark) string {
	entries := map[string]plans.RegistryEvent{}
	for _, ev := range b.log {
		entries[ev.Name] = ev
	}
	covered := map[string]bool{}
	for id, m := range b.stored {
		covered[id] = true
		if m.Slot.Range {
			for _, id := range b.members(m) {
				covered[id] = true
			}
		}
	}
	for _, ev := range entries {
		for _, p := range ev.Entry.Plans() {
			s, err := job.ParseSchedule(ev.Name, p.Plan)
			if err != nil {
				continue
			}
			for _, part := range ev.Entry.Stretches(p, s) {
				if !positionOf(wm).knows(ev.Entry.Revision, part.Since) {
					continue
				}
				end := wm.Time.Add(-s.Delay())
				if !part.Until.IsZero() && part.Until.Before(end) {
					end = part.Until
				}
				for at := range s.Between(part.After, end) {
					if id := job.NewSlot(ev.Name, at).ID(); !covered[id] {
						return id
					}
				}
			}
		}
	}
	return ""
}

// Invariant 2: publish before the watermark moves.
func TestWatermarkMovesOnlyAfterEverySlotUpToItIsStored(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				b.check = func(wm exchange.Watermark) {
					if id := b.unstored(wm); id != "" {
						t.Errorf("watermark %v at revision %d, but %s is not stored", wm.Time, wm.Revision, id)
					}
				}
				b.setAnswer(faulty(seed))
				for i, spec := range []string{"* * * * * *", "*/7 * * * * *", "* * * * *", "@every 3s"} {
					def := every(fmt.Sprint("job", i), spec, job.CatchUpAll)
					def.Spread = time.Duration(i) * 10 * time.Second
					b.apply(def)
				}
				p, q := b.start(), b.start()
				advance(20 * time.Second)
				b.apply(every("late", "*/2 * * * * *", job.CatchUpAll))
				advance(20 * time.Second)
				p.stop()
				b.apply(every("late", "*/3 * * * * *", job.CatchUpAll))
				advance(20 * time.Second)
				q.stop()
				b.setAnswer(nil)
				p = b.start()
				advance(time.Minute)
				p.stop()
				if wm := b.watermark(); time.Since(wm.Time) > 5*time.Second || wm.Revision != 6 {
					t.Errorf("watermark %v at revision %d after a minute without faults, want %v at 6", wm.Time, wm.Revision, time.Now())
				}
			})
		})
	}
}

// Invariant 2: the watermark never goes back.
func TestWatermarkNeverGoesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.apply(every("a", "* * * * * *", ""))
		b.check = func(wm exchange.Watermark) {
			if wm.Time.Before(b.mark.Time) || wm.Revision < b.mark.Revision || wm.RegistryTime.Before(b.mark.RegistryTime) {
				t.Errorf("watermark went from %v at %d to %v at %d", b.mark.Time, b.mark.Revision, wm.Time, wm.Revision)
			}
		}
		clock := func(d time.Duration) func(*Config, *view) {
			return func(_ *Config, v *view) { v.offset = d }
		}
		fast, slow, deaf := b.start(clock(3*time.Second)), b.start(clock(-3*time.Second)), b.start()
		advance(10 * time.Second)
		deaf.deafen(true)
		b.apply(every("b", "* * * * * *", ""))
		advance(20 * time.Second)
		fast.step(-10 * time.Second)
		advance(20 * time.Second)
		fast.stop()
		advance(time.Minute)
		slow.stop()
		advance(time.Minute)
		deaf.stop()
		if wm := b.watermark(); wm.Revision != 2 {
			t.Errorf("watermark at revision %d, want 2: a producer that knows less must not take it over", wm.Revision)
		}
	})
}

func TestWatermarkIsWrittenOnceASecondAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.applyEach(20, "")
		var fleet []*running
		for range 5 {
			fleet = append(fleet, b.start())
		}
		advance(time.Minute)
		for _, p := range fleet {
			p.stop()
		}
		if n := len(b.markWrite); n < 50 || n > 75 {
			t.Errorf("%d writes by five producers in a minute, want about one a second", n)
		}
	})
}

func TestWatermarkIsTakenOverFromADeadProducer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.apply(every("a", "* * * * * *", ""))
		p, q := b.start(), b.start()
		advance(time.Minute)
		p.stop()
		advance(15 * time.Second)
		first := b.watermark().Time
		q.stop()
		if d := time.Since(first); d > 3*time.Second {
			t.Errorf("the watermark is %v old 15 s after one of two producers died", d)
		}
	})
}

// A newer program may add a member to the watermark. Every write keeps it: of the producer
// that found it, and of the next one.
func TestWatermarkKeepsWhatANewerProgramPutThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.apply(every("a", "* * * * * *", ""))
		p := b.start()
		advance(10 * time.Second)
		for round, shade := range []string{`"red"`, `"blue"`} {
			mark := b.watermark()
			mark.Extra = codec.Extra{"shade": json.RawMessage(shade)}
			mark.Time = mark.Time.Add(time.Millisecond)
			b.resetTo(mark)
			advance(15 * time.Second) // a producer that met a conflict waits for five seconds
			if now := b.watermark(); now.Node == "" || now.Nonce == "operator" || string(now.Extra["shade"]) != shade {
				t.Errorf("round %d: the producer wrote %+v", round, now)
			}
		}
		p.stop()
		b.start()
		advance(10 * time.Second)
		if now := b.watermark(); string(now.Extra["shade"]) != `"blue"` {
			t.Errorf("the next producer wrote %+v", now)
		}
	})
}
