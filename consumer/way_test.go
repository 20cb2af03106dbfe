package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/job"
)

// oneSlot runs n slots of a short job of the default policy, one after the other.
func oneSlot(t *testing.T, n int) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report", Overlap: job.OverlapSkip}, func(context.Context, job.Run) error { return nil })
		stop := b.run()
		time.Sleep(10 * time.Millisecond)
		for i := range n {
			b.publish("report")
			b.settled(i + 1)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Duration(2-n) * 2 * time.Second)
		_ = stop()
	})
}

func TestWayOfOneSlot(t *testing.T) { oneSlot(t, 1) }
func TestWayOfNoSlot(t *testing.T)  { oneSlot(t, 0) }
