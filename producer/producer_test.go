package producer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPublishesEverySlotAtItsInstant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.applyEach(100, "")
		start := time.Now()
		p := b.start()
		advance(time.Minute + 100*time.Millisecond)
		p.stop()
		if n := len(b.stored); n != 100*60 {
			t.Errorf("%d slots stored, want 6000", n)
		}
		for id, at := range b.storedAt {
			if late := at.Sub(b.stored[id].Due); late < 0 || late > 20*time.Millisecond {
				t.Errorf("%s stored %v after its due time", id, late)
			}
		}
		if wm := b.watermark(); wm.Time.Before(start.Add(58*time.Second)) || wm.Revision != 100 {
			t.Errorf("watermark %v at revision %d", wm.Time, wm.Revision)
		}
		if s := p.Stats(); s.Published != 6000 || s.Folded != 0 || s.Retried != 0 || s.Missed != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A nap may end early; the clock decides which slots are due.
func TestASlotIsSentAfterANapAndNeverBeforeItIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.apply(every("a", "* * * * * *", ""))
		naps, longest := 0, time.Duration(0)
		p := b.start(func(c *Config, _ *view) {
			c.Nap = func(d time.Duration) {
				naps, longest = naps+1, max(longest, d)
				time.Sleep(d/2 + time.Microsecond)
			}
		})
		advance(10*time.Second + 100*time.Millisecond)
		p.stop()
		if len(b.stored) != 10 || naps < 10 || longest > 2*time.Millisecond {
			t.Errorf("%d slots stored after %d naps of %v at most", len(b.stored), naps, longest)
		}
		for id, at := range b.storedAt {
			if late := at.Sub(b.stored[id].Due); late < 0 || late > 20*time.Millisecond {
				t.Errorf("%s stored %v after its due time", id, late)
			}
		}
	})
}

func TestEditTakesEffectAtItsTimestamp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		oldJob, newJob := every("a", "*/2 * * * * *", ""), every("a", "*/3 * * * * *", "")
		oldJob.Spread, newJob.Spread = 20*time.Second, 20*time.Second
		e := b.apply(oldJob)
		p := b.start()
		advance(30 * time.Second) // the edit falls on a slot of both plans, which is the old plan's
		edit := b.apply(newJob)
		advance(time.Minute)
		s, err := job.ParseSchedule("a", newJob.Plan())
		if err != nil {
			t.Fatal(err)
		}
		b.wantAll("a", append(slots(t, oldJob, e.Time, edit.Time), slots(t, newJob, edit.Time, time.Now().Add(-s.Delay()-10*time.Millisecond))...))
		p.stop()
	})
}

func TestTwoProducersWithDifferentViewsPublishTheSameSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.apply(every("a", "*/5 * * * * *", ""))
		p := b.start()
		advance(30 * time.Second)
		b.apply(every("b", "*/7 * * * * *", ""))
		q := b.start(func(_ *Config, v *view) { v.offset = -700 * time.Millisecond })
		advance(30 * time.Second)
		b.take()
		advance(time.Minute)
		p.stop()
		q.stop()
		times := map[string]int{}
		for _, m := range b.take() {
			times[m.Slot.ID()]++
		}
		for id, n := range times {
			if n != 2 && b.stored[id].Due.Before(time.Now().Add(-time.Second)) {
				t.Errorf("%s was published %d times by two producers", id, n)
			}
		}
		if len(times) < 20 {
			t.Errorf("%d slots in a minute, want 20", len(times))
		}
	})
}

func TestMessageCarriesTheDefinitionItWasComputedFrom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def := every("a", "@at 2000-01-01T00:00:10Z", "")
		def.Queue, def.Spread = "reports", 4*time.Second
		e := b.apply(def)
		p := b.start()
		advance(20 * time.Second)
		p.stop()
		s, err := job.ParseSchedule("a", def.Plan())
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC)
		want := core.Message{Slot: job.NewSlot("a", at), JobRevision: e.Revision, Node: "n", Due: at.Add(s.Delay())}
		if got := b.stored["a:2000-01-01T00:00:10Z"]; got != want || s.Delay() == 0 {
			t.Errorf("message %+v, want %+v", got, want)
		}
	})
}

func TestNewRefusesWhatCannotRun(t *testing.T) {
	t.Parallel()
	v := &view{}
	good := Config{Node: "n", Registry: v, Watermark: v, Slots: v, Clock: v}
	for name, edit := range map[string]func(*Config){
		"no node":          func(c *Config) { c.Node = "" },
		"no registry":      func(c *Config) { c.Registry = nil },
		"no watermark":     func(c *Config) { c.Watermark = nil },
		"no slots":         func(c *Config) { c.Slots = nil },
		"no clock":         func(c *Config) { c.Clock = nil },
		"negative horizon": func(c *Config) { c.Horizon = -1 },
	} {
		cfg := good
		edit(&cfg)
		if _, err := New(cfg); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%s: New = %v, want ErrInvalid", name, err)
		}
	}
	if _, err := New(good); err != nil {
		t.Errorf("New = %v", err)
	}
}

// A slot has as many messages as its plan has shards. A range of missed slots has one.
func TestASlotOfShardsIsOneMessageForEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def := every("a", "*/10 * * * * *", job.CatchUpNone)
		def.Shards = 3
		e := b.apply(def)
		advance(5 * time.Minute)
		p := b.start()
		advance(time.Minute)
		p.stop()
		whole, shards := map[string]int{}, map[string]int{}
		for _, m := range b.stored {
			switch {
			case m.Slot.Range:
				for _, id := range b.members(m) {
					whole[id]++
				}
			case m.Slot.Shards == 3 && m.Missed == 0:
				shards[m.Slot.Whole().ID()]++
			default:
				t.Errorf("%s missed=%d", m.Slot, m.Missed)
			}
		}
		for _, at := range slots(t, def, e.Time, time.Now().Add(-time.Second)) {
			if whole[at]+shards[at]/3 != 1 || shards[at]%3 != 0 {
				t.Errorf("%v: %d whole, %d shards", at, whole[at], shards[at])
			}
		}
		if len(whole) == 0 || len(shards) == 0 {
			t.Errorf("%d whole, %d split", len(whole), len(shards))
		}
	})
}
