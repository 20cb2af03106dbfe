package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Producers that judge late slots at different moments publish ranges that overlap, and a producer
// that died may have published slots of the range.
func TestARangeIsRecordedFromItsFirstSlotWithoutAnOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own    []int  // slots, in minutes, with a record of their own
		ranges [2]int // the range that is recorded already
		first  int    // of the record that is written; 0: none
		count  int
	}{
		"nothing is recorded":             {nil, [2]int{}, 1, 10},
		"its first slots ran":             {[]int{1, 2}, [2]int{}, 3, 8},
		"a slot in the middle ran":        {[]int{5}, [2]int{}, 1, 10},
		"a shorter range":                 {nil, [2]int{1, 6}, 7, 4},
		"a shorter range, and what ran":   {[]int{7, 8}, [2]int{1, 6}, 9, 2},
		"what ran, and a shorter range":   {[]int{1}, [2]int{2, 6}, 7, 4},
		"all of it by a longer range":     {nil, [2]int{1, 12}, 0, 0},
		"all of it":                       {[]int{1}, [2]int{2, 10}, 0, 0},
		"all of it, each by its own slot": {[]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, [2]int{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.handle(job.Job{Name: "report", Schedule: "* * * * *", OnMissed: target}, func(context.Context, job.Run) error { return nil })
				start := time.Now().Truncate(time.Minute).Add(-30 * time.Minute).UTC()
				at := func(minute int) time.Time { return start.Add(time.Duration(minute) * time.Minute) }
				rangeOf := func(from int) job.Slot { return job.Slot{Job: "report", At: at(from), Range: true} }
				for _, minute := range c.own {
					b.write(job.Record{Slot: job.NewSlot("report", at(minute)), State: job.Succeeded, Node: "B", Nonce: "x", Attempt: 1}, 0)
				}
				if c.ranges[1] > 0 {
					b.write(job.Record{Slot: rangeOf(c.ranges[0]), State: job.Missed, Node: "B", Nonce: "x", Count: 99, Last: at(c.ranges[1])}, 0)
				}
				stop := b.run()
				for range 2 { // the message comes twice
					b.queue.add(core.Message{Slot: rangeOf(1), JobRevision: 1, Due: at(10), Missed: 10, MissedLast: at(10)})
				}
				b.settled(2)
				_ = stop()
				written := 0
				for minute := 1; minute <= 12; minute++ {
					r, _, err := b.ledger.Read(t.Context(), rangeOf(minute))
					if err != nil || r.Count == 99 {
						continue
					}
					written++
					if minute != c.first || r.Count != c.count || !r.Last.Equal(at(10)) || r.State != job.Missed {
						t.Errorf("%s is %s with %d slots to %v, want %d from minute %d on", r.Slot, r.State, r.Count, r.Last, c.count, c.first)
					}
				}
				alerts := 0
				for _, e := range b.alerts {
					if e.Count != 99 {
						alerts++
					}
				}
				if want := min(c.count, 1); written != want || alerts != want {
					t.Errorf("%d records and %d alerts, want %d", written, alerts, want)
				}
			})
		})
	}
}
