package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/job"
)

// The two tests differ by one slot of the default policy. integration/way compares what
// they reach.

func TestWayOfOneSlot(t *testing.T) { runShortSlots(t, 1) }
func TestWayOfNoSlot(t *testing.T)  { runShortSlots(t, 0) }

func runShortSlots(t *testing.T, slots int) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report", Overlap: job.OverlapSkip}, func(context.Context, job.Run) error { return nil })
		stop := b.run()
		time.Sleep(time.Second)
		for range slots {
			b.publish("report")
		}
		time.Sleep(3 * time.Second)
		if v := b.queue.verdicts(); len(v) != slots {
			t.Errorf("verdicts %q, want %d", v, slots)
		}
		_ = stop()
	})
}
