package producer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// judged returns what becomes of the slots up to now, oldest first, if they are published
// now: the policy decides about the late ones.
func judged(t *testing.T, def job.Job, after time.Time, runs int) map[string]string {
	t.Helper()
	want := map[string]string{}
	now := time.Now()
	late := slots(t, def, after, now.Add(-plans.LateAfter-time.Nanosecond))
	for i, id := range late {
		want[id] = "missed"
		if i >= len(late)-runs {
			want[id] = "caught up"
		}
	}
	for _, id := range slots(t, def, now.Add(-plans.LateAfter-time.Nanosecond), now) {
		want[id] = "run"
	}
	return want
}

func merge(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for id, is := range m {
			all[id] = is
		}
	}
	return all
}

func run(ids []string) map[string]string {
	m := map[string]string{}
	for _, id := range ids {
		m[id] = "run"
	}
	return m
}

var policies = []struct {
	policy job.CatchUpPolicy
	max    int
	runs   int
}{
	{job.CatchUpLatest, 0, 1},
	{job.CatchUpAll, 0, 100},
	{job.CatchUpAll, 3, 3},
	{job.CatchUpNone, 0, 0},
}

func TestRestartOfEverythingLosesNoSlot(t *testing.T) {
	t.Parallel()
	for _, tt := range policies {
		t.Run(string(tt.policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				def := every("a", "*/20 * * * * *", tt.policy)
				def.CatchUp.Max = tt.max
				e := b.apply(def)
				p := b.start()
				advance(5*time.Minute + 500*time.Millisecond)
				p.stop()
				down := time.Now()
				advance(10 * time.Minute)
				want := merge(run(slots(t, def, e.Time, down)), judged(t, def, down, tt.runs))
				p = b.start()
				advance(5 * time.Second)
				b.want("a", want)
				p.stop()
			})
		})
	}
}

func TestWithinBoundsHowFarBackASlotRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def := every("a", "* * * * *", job.CatchUpAll)
		def.CatchUp.Within = 3*time.Minute + time.Second
		start := time.Now()
		b.apply(def)
		advance(10*time.Minute + 30*time.Second)
		want := judged(t, def, start, 2) // at 8:00 and 9:00
		p := b.start()
		advance(time.Second)
		b.want("a", want)
		p.stop()
	})
}

func TestMissedSlotsEndInOneRangeAfterAllThatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def := every("a", "* * * * * *", job.CatchUpLatest)
		start := time.Now()
		b.apply(def)
		advance(time.Hour)
		b.setAnswer(func(m core.Message) fault {
			if m.Slot.Range && len(b.stored) != 62 {
				t.Errorf("the range is published when %d other slots are stored, want all 62", len(b.stored))
			}
			return fine
		})
		p := b.start()
		advance(50 * time.Millisecond)
		p.stop()
		// 3,600 slots: the last one is due now, 60 before it are on time, and one before these is caught up.
		ranges := b.ranges("a")
		if len(ranges) != 1 || len(b.stored) != 63 {
			t.Fatalf("%d messages with %d ranges, want 63 with one", len(b.stored), len(ranges))
		}
		r, first, last := ranges[0], start.Add(time.Second), start.Add(3538*time.Second)
		if r.Missed != 3538 || !r.Slot.At.Equal(first) || !r.MissedLast.Equal(last) {
			t.Errorf("%s has %d slots to %v, want 3538 from %v to %v", r.Slot, r.Missed, r.MissedLast, first, last)
		}
	})
}

func TestNewJobThatIsDeliveredLateLosesNoSlot(t *testing.T) {
	t.Parallel()
	for _, witness := range []bool{false, true} {
		t.Run(fmt.Sprint("another knew it: ", witness), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				b.apply(every("old", "* * * * * *", ""))
				deaf := b.start()
				advance(10 * time.Second)
				deaf.deafen(true)
				def := every("new", "*/5 * * * * *", "")
				e := b.apply(def)
				if witness {
					knows := b.start()
					advance(12 * time.Second)
					knows.stop()
				}
				advance(10*time.Second + 500*time.Millisecond) // the producer without changes goes on alone
				if wm := b.watermark(); !witness && !wm.Time.After(e.Time.Add(5*time.Second)) {
					t.Errorf("watermark %v was not moved past the new job's first slot", wm.Time)
				}
				deaf.stop()
				p := b.start()
				advance(10 * time.Second)
				p.stop()
				b.wantAll("new", slots(t, def, e.Time, time.Now()))
			})
		})
	}
}

func TestEditWhileEverythingIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		oldJob, newJob := every("a", "*/10 * * * * *", ""), every("a", "*/15 * * * * *", "")
		e := b.apply(oldJob)
		p := b.start()
		advance(30*time.Second + 500*time.Millisecond)
		p.stop()
		advance(15 * time.Second)
		edit := b.apply(newJob)
		newJob.Payload = []byte(`{"changed": "again"}`)
		advance(5 * time.Second)
		b.apply(newJob)
		advance(5 * time.Second)
		p = b.start()
		advance(30 * time.Second)
		p.stop()
		b.wantAll("a", append(slots(t, oldJob, e.Time, edit.Time), slots(t, newJob, edit.Time, time.Now())...))
	})
}

// An edit of anything but the plan makes the entry newer than the watermark, and leaves its
// slots as old as they are. They must not be published again, least of all as missed.
func TestEditOfThePayloadPublishesNoSlotAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def := every("a", "* * * * * *", "")
		b.apply(def)
		p := b.start()
		advance(time.Hour)
		p.stop()
		def.Payload = []byte(`1`)
		b.apply(def)
		b.take()
		p = b.start()
		advance(10 * time.Second)
		p.stop()
		if n := len(b.take()); n > 14 {
			t.Errorf("%d publications in ten seconds after the edit", n)
		}
	})
}
