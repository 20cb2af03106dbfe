package consumer_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/job"
)

func TestNoSlotIsTakenWhileItsQueueIsNotReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var started atomic.Int32
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error {
			started.Add(1)
			time.Sleep(10 * time.Second)
			b.queue.returned()
			return nil
		})
		gate := make(chan struct{})
		var current atomic.Pointer[chan struct{}]
		current.Store(&gate)
		b.cfg.Ready = func() <-chan struct{} { return *current.Load() }
		stop := b.run()
		b.publish("report")
		time.Sleep(time.Minute)
		if n := started.Load(); n != 0 || b.asked() != 0 {
			t.Errorf("%d slots were started and %d asked for before the queue was ready", n, b.asked())
		}
		close(gate)
		time.Sleep(time.Second)
		if n := started.Load(); n != 1 {
			t.Errorf("%d slots were started when the queue was ready, want 1", n)
		}

		// Running slots go on; slots of open requests are given back.
		closed := make(chan struct{})
		current.Store(&closed)
		second := b.publish("report")
		time.Sleep(20 * time.Second)
		if v := b.queue.verdicts(); started.Load() != 1 || len(v) == 0 {
			t.Errorf("%d slots were started, verdicts %q", started.Load(), v)
		}
		if b.asked() != 0 {
			t.Errorf("%d slots are asked for while the queue is not ready", b.asked())
		}
		close(closed)
		time.Sleep(20 * time.Second)
		if r := b.record(second); r.State != job.Succeeded || r.Attempt != 1 {
			t.Errorf("record %+v, want succeeded at its first attempt", r)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAConsumerThatIsNotReadyStopsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Ready = func() <-chan struct{} { return nil }
		stop := b.run()
		time.Sleep(time.Minute)
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestOutputIsKeptAsFarAsTheJobSays(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{0: job.DefaultOutput, 10: 10, job.MaxOutput: job.MaxOutput} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.handle(job.Job{Name: "report", Output: limit}, func(_ context.Context, run job.Run) error {
				_, err := run.Output.Write(bytes.Repeat([]byte("x"), 100<<10))
				return err
			})
			stop := b.run()
			slot := b.publish("report")
			b.settled(1)
			_ = stop()
			if got := strings.Count(b.record(slot).Output, "x"); got != want {
				t.Errorf("output: %d: %d bytes are kept, want %d", limit, got, want)
			}
		})
	}
}

// asked returns how many messages are asked for now.
func (b *bench) asked() int {
	b.queue.mu.Lock()
	defer b.queue.mu.Unlock()
	return b.queue.asked
}
