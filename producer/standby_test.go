package producer

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// crowd starts members and waits until they share the jobs, which have a slot each second.
func crowd(b *broker, members, jobs int) (all []*running) {
	b.applyEach(jobs, job.CatchUpAll)
	for range members {
		all = append(all, b.member(unaudited))
	}
	advance(3*time.Second + 500*time.Millisecond)
	b.take()
	b.announcements()
	return all
}

// unaudited turns the producer's audits off.
func unaudited(c *Config, _ *view) { c.auditEvery = 1000 * time.Hour }

func stopAll(all []*running) {
	for _, p := range all {
		p.stop()
	}
}

// copies counts the publications of each slot.
func copies(messages []core.Message) map[string]int {
	n := map[string]int{}
	for _, m := range messages {
		n[m.Slot.ID()]++
	}
	return n
}

// betweenSlots waits until the slots of this second should have been published, by their
// owner or after the standby delay.
func betweenSlots() {
	advance(time.Until(time.Now().Truncate(time.Second).Add(1700 * time.Millisecond)))
}

// complete fails unless every slot of the jobs up to now is stored and was at most that
// late.
func (b *broker) complete(jobs int, since time.Time, most time.Duration) {
	b.t.Helper()
	betweenSlots()
	for i := range jobs {
		name := fmt.Sprint("job", i)
		b.wantAll(name, slots(b.t, every(name, "* * * * * *", ""), since, time.Now()))
	}
	for id, d := range b.late(most) {
		b.t.Errorf("%s is %v late, more than %v", id, d, most)
	}
}

func TestManyProducersPublishOneCopyOfEachSlot(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 5, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				start := time.Now()
				all := crowd(b, n, 40)
				advance(30 * time.Second)
				sum, messages := 0, b.take()
				for id, n := range copies(messages) {
					sum += n
					if n != 1 {
						t.Errorf("%d copies of %s", n, id)
					}
				}
				if sum != 30*40 {
					t.Errorf("%d publications of %d slots", sum, 30*40)
				}
				b.complete(40, start, 10*time.Millisecond)
				if wm := b.watermark(); time.Since(wm.Time) > 3*time.Second {
					t.Errorf("the watermark is %v behind", time.Since(wm.Time))
				}
				shares, stoodBy := map[string]int{}, uint64(0)
				for _, m := range messages {
					shares[m.Node]++
				}
				for _, p := range all {
					stoodBy += p.Stats().StoodBy
				}
				if len(shares) != min(n, maxActive) || stoodBy < 30*40 {
					t.Errorf("shares %v, %d copies dropped", shares, stoodBy)
				}
				stopAll(all)
			})
		})
	}
}

// Whichever producer dies, its slots are late by at most half a second, and only once.
func TestADeadProducersSlotsAreLateOnce(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{0, 2 * time.Millisecond, 300 * time.Millisecond, 990 * time.Millisecond} {
		t.Run(fmt.Sprint(offset), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				start := time.Now()
				all := crowd(b, 4, 40)
				advance(500*time.Millisecond + offset)
				died := time.Now()
				all[1].die()
				advance(10*time.Second - time.Since(died.Truncate(time.Second)))
				advance(500 * time.Millisecond)
				b.complete(40, start, 500*time.Millisecond)
				for id := range b.late(20 * time.Millisecond) {
					if s, _ := job.ParseSlotID(id); s.At.Sub(died) > time.Second {
						t.Errorf("%s is late, %v after the death", id, s.At.Sub(died))
					}
				}
				b.take()
				advance(10 * time.Second)
				for id, n := range copies(b.take()) {
					if n != 1 {
						t.Errorf("%d copies of %s", n, id)
					}
				}
				stopAll([]*running{all[0], all[2], all[3]})
			})
		})
	}
}

// A producer that stops in order makes no slot late.
func TestAProducerThatLeavesCostsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		all := crowd(b, 3, 40)
		all[0].stop()
		advance(10 * time.Second)
		b.complete(40, start, 20*time.Millisecond)
		stopAll(all[1:])
	})
}

// A producer that leaves may have unacknowledged slots of its share. The others publish
// them.
func TestTheShareOfAProducerThatLeavesIsPublished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		all := crowd(b, 3, 40)
		all[2].view.mu.Lock()
		all[2].refuse = true
		all[2].view.mu.Unlock()
		advance(550 * time.Millisecond)
		all[2].stop()
		b.complete(40, start, 100*time.Millisecond)
		stopAll(all[:2])
	})
}

// A producer has left, and only one of the two others knows. What one announces of its
// share says nothing about the copies of the other.
func TestAnnouncementForOtherMembersIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		all := crowd(b, 3, 40)
		advance(100 * time.Millisecond)
		b.mu.Lock()
		b.lost = func(from, to *view) bool { return from == all[2].view && to == all[0].view }
		b.mu.Unlock()
		all[2].stop()                   // the second producer learns of it
		advance(450 * time.Millisecond) // the first one has announced its share of the next second
		all[0].die()                    // and keeps the other copies for the third
		b.complete(40, start, 500*time.Millisecond)
		stopAll(all[1:2])
	})
}

// All but five producers rest. So the announcements of an idle fleet do not grow with it.
func TestProducersBeyondFiveRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.apply(every("far", "@yearly", ""))
		all := crowd(b, 40, 0)
		advance(10 * time.Second)
		if n := b.announcements(); n > 10*maxActive+maxActive {
			t.Errorf("%d announcements of 40 idle producers in ten seconds", n)
		}
		first := 0
		for i, p := range all {
			if p.First() {
				first++
			}
			if active := p.rank.Load() > 0; active != (i < maxActive) {
				t.Errorf("producer %d by age takes part: %v", i, active)
			}
		}
		if first != 1 || !all[0].First() {
			t.Errorf("%d producers are the first, the oldest: %v", first, all[0].First())
		}
		stopAll(all)
	})
}

// When all active producers die at once, the resting ones go on from the watermark.
func TestRestingProducersTakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		all := crowd(b, 9, 20)
		advance(2 * time.Minute)
		for _, p := range all[:maxActive] {
			p.die()
		}
		b.take()
		died := time.Now()
		advance(20 * time.Second)
		for _, m := range b.take() {
			if m.Missed > 0 || m.CaughtUp || died.Sub(m.Due) > 3*time.Second {
				t.Fatalf("%s was published again by a resting producer: %+v", m.Slot, m)
			}
		}
		b.complete(20, start, peerTimeout+2*time.Second)
		b.take()
		advance(10 * time.Second)
		for id, n := range copies(b.take()) {
			if n != 1 {
				t.Errorf("%d copies of %s", n, id)
			}
		}
		if !all[maxActive].First() {
			t.Error("no producer is the first")
		}
		stopAll(all[maxActive:])
	})
}

// A producer that does not know a job announces nothing about it, whatever else it
// announces.
func TestProducersThatDisagreeOnTheRegistryTrustNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		all := crowd(b, 3, 20)
		all[0].deafen(true)
		all[1].deafen(true)
		var created []plans.Entry
		for i := range 20 {
			created = append(created, b.apply(every(fmt.Sprint("new", i), "* * * * * *", "")))
		}
		advance(10*time.Second + 500*time.Millisecond)
		betweenSlots()
		for _, e := range created {
			b.wantAll(e.Job.Name, slots(t, e.Job, e.Time, time.Now()))
		}
		for id, d := range b.late(defaultStandbyDelay + 20*time.Millisecond) {
			t.Errorf("%s is %v late", id, d)
		}
		stopAll(all)
	})
}

// A producer that hears no other, or only some, or is not heard, publishes. The others do
// not wait for it twice.
func TestProducersThatDisagreeOnTheMembersPublishEverySlot(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]func(all []*running, from, to *view) bool{
		"one is deaf": func(all []*running, _, to *view) bool { return to == all[0].view },
		"one is mute": func(all []*running, from, _ *view) bool { return from == all[0].view },
		"two do not meet": func(all []*running, from, to *view) bool {
			return from == all[0].view && to == all[1].view || from == all[1].view && to == all[0].view
		},
		"one way only":              func(all []*running, from, to *view) bool { return from == all[0].view && to == all[1].view },
		"no producer hears another": func([]*running, *view, *view) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				start := time.Now()
				all := crowd(b, 4, 20)
				b.mu.Lock()
				b.lost = func(from, to *view) bool { return lost(all, from, to) }
				b.mu.Unlock()
				advance(20 * time.Second)
				b.mu.Lock()
				b.lost = nil
				b.mu.Unlock()
				advance(20 * time.Second)
				b.complete(20, start, 2*defaultStandbyDelay)
				b.take()
				advance(10 * time.Second)
				for id, n := range copies(b.take()) {
					if n != 1 {
						t.Errorf("%d copies of %s after they have met again", n, id)
					}
				}
				stopAll(all)
			})
		})
	}
}

// A producer that freezes at any moment has announced only what is stored.
func TestAProducerThatIsStoppedAnywhereLosesNothing(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{499, 500, 501, 502, 503, 504, 506, 600} {
		t.Run(fmt.Sprint(offset), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				start := time.Now()
				all := crowd(b, 4, 20)
				advance(offset * time.Millisecond)
				thaw := all[2].freeze()
				advance(7 * time.Second)
				thaw()
				all[2].view.mu.Lock()
				all[2].view.frozen = nil
				all[2].view.mu.Unlock()
				advance(10 * time.Second)
				b.complete(20, start, 500*time.Millisecond)
				stopAll(all)
			})
		})
	}
}

// A producer that is alive and cannot publish delays the others twice at most.
func TestProducerThatCannotPublishDelaysOthersTwiceAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		all := crowd(b, 3, 20)
		all[1].view.mu.Lock()
		all[1].refuse = true
		all[1].view.mu.Unlock()
		advance(9 * time.Second)
		b.complete(20, start, standbyLimit+50*time.Millisecond)
		for id, d := range b.late(50 * time.Millisecond) {
			if s, _ := job.ParseSlotID(id); s.At.Sub(start) > 7*time.Second {
				t.Errorf("%s is still %v late", id, d)
			}
		}
		stopAll(all)
	})
}

// Producers go on sharing all jobs but the one that the broker refuses.
func TestRefusedJobIsExceptedFromAnnouncements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		all := crowd(b, 3, 20)
		b.apply(every("refused", "* * * * * *", job.CatchUpAll))
		b.setAnswer(func(m core.Message) fault {
			if m.Slot.Job == "refused" {
				return refused
			}
			return fine
		})
		advance(30 * time.Second)
		b.take()
		advance(20 * time.Second)
		sum := 0
		for _, m := range b.take() {
			if m.Slot.Job != "refused" {
				sum++
			}
		}
		if sum > 20*20*11/10 {
			t.Errorf("%d publications of %d slots", sum, 20*20)
		}
		for id, d := range b.late(20 * time.Millisecond) {
			t.Errorf("%s is %v late", id, d)
		}
		b.setAnswer(nil)
		advance(10 * time.Second)
		stopAll(all)
	})
}

// A producer that cannot read a definition leaves the work to those that can.
func TestProducerThatCannotReadADefinitionRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		blind := func(_ *Config, v *view) { v.blind = "job3" }
		old := b.member(blind)
		advance(time.Second)
		all := crowd(b, 2, 20)
		advance(10 * time.Second)
		b.complete(20, start.Add(time.Second), defaultStandbyDelay+50*time.Millisecond)
		if old.rank.Load() != 0 {
			t.Error("it takes part")
		}
		for _, p := range all {
			p.die()
		}
		b.take()
		advance(10 * time.Second)
		betweenSlots()
		for i := range 20 {
			if name := fmt.Sprint("job", i); name != "job3" {
				b.wantAll(name, slots(t, every(name, "* * * * * *", ""), start.Add(time.Second), time.Now()))
			}
		}
		if wm := b.watermark().Time; wm.After(start.Add(16 * time.Second)) {
			t.Errorf("the watermark was moved to %v by a producer that cannot read everything", wm)
		}
		old.stop()
	})
}

// A producer whose time zone data are older than another's leaves the work to the others if
// a job has a time zone. Alone it publishes what it computes, and does not move the
// watermark.
func TestProducerWithOlderTimeZoneDataDoesNotMoveTheWatermarkOverZonedJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		var behind atomic.Bool
		old := b.member(func(c *Config, _ *view) { c.ZonesBehind = behind.Load })
		advance(time.Second)
		all := crowd(b, 2, 3)
		behind.Store(true)
		advance(5 * time.Second)
		if old.rank.Load() == 0 {
			t.Error("it does not take part, although all jobs are in UTC")
		}
		def := every("zoned", "* * * * * *", job.CatchUpAll)
		def.Timezone = "Europe/Berlin"
		e := b.apply(def)
		advance(5 * time.Second)
		if old.rank.Load() != 0 {
			t.Error("it takes part, although another knows the slots of a job better")
		}
		if wm := b.watermark(); time.Since(wm.Time) > 3*time.Second {
			t.Errorf("the others hold the watermark at %v", wm.Time)
		}
		for _, p := range all {
			p.die()
		}
		alone := time.Now()
		advance(10 * time.Second)
		betweenSlots()
		b.wantAll("zoned", slots(t, def, e.Time, time.Now()))
		if wm := b.watermark(); wm.Time.After(alone) {
			t.Errorf("the watermark was moved to %v by the producer with older data", wm.Time)
		}
		b.delete("zoned")
		advance(8 * time.Second)
		if wm := b.watermark(); time.Since(wm.Time) > 3*time.Second {
			t.Errorf("the watermark %v is held up by a job that was removed", wm.Time)
		}
		old.stop()
	})
}

// faultyBits returns random numbers from a fixed seed.
func faultyBits(seed uint64) func() uint64 {
	return rand.New(rand.NewPCG(seed, 2)).Uint64
}

// Members come and go each second, and half of their announcements are lost.
func TestChurn(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				start := time.Now()
				all := crowd(b, 7, 20)
				r, loss := faultyBits(seed), faultyBits(seed+100)
				b.mu.Lock()
				b.lost = func(*view, *view) bool { return seed%2 == 1 && loss()%2 == 0 }
				b.mu.Unlock()
				for range 40 {
					advance(time.Duration(700+r()%600) * time.Millisecond)
					i := int(r() % uint64(len(all)))
					if r()%2 == 0 {
						all[i].stop()
					} else {
						all[i].die()
					}
					all[i] = b.member()
				}
				advance(5 * time.Second)
				b.complete(20, start, peerTimeout+2*time.Second)
				stopAll(all)
			})
		})
	}
}

func TestSharesAreEven(t *testing.T) {
	t.Parallel()
	f := newFleet(Config{Node: "n1", Started: epoch}.withDefaults())
	now := time.Now()
	for i := range 4 {
		f.receive(exchange.Announcement{Node: fmt.Sprint("m", i), Started: epoch.Add(time.Second), Kind: exchange.AnnounceHere}, now)
	}
	f.update(now, true, 1)
	shares := map[string]int{}
	for i := range 10_000 {
		shares[f.owner(fmt.Sprint("job", i)).name]++
	}
	for _, p := range f.active {
		if n := shares[p.name]; n < 1800 || n > 2200 {
			t.Errorf("%d of 10000 jobs are %s's share", n, p.name)
		}
	}
}

// The owner of a job is computed for every slot.
func BenchmarkOwner(b *testing.B) {
	f := newFleet(Config{Node: "n1", Started: epoch}.withDefaults())
	for i := range maxActive {
		f.receive(exchange.Announcement{Node: fmt.Sprint("m", i), Kind: exchange.AnnounceHere}, time.Now())
	}
	f.update(time.Now(), true, 1)
	b.ReportAllocs()
	for b.Loop() {
		f.owner("a-name-of-24-characters-")
	}
}
