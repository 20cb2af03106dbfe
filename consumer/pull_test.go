package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// So an idle fleet sends few requests, and a worker that freezes on a busy queue withholds few
// messages.
func TestRequestsAreLongOnAnIdleQueueAndShortOnABusyOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
		stop := b.run()
		time.Sleep(time.Minute)
		idle := b.queue.asks()
		if n := len(idle); n > 25 || slices.Max(idle) > lease/5 {
			t.Errorf("%d requests in an idle minute, the longest of %v; want at most 25, of %v", n, slices.Max(idle), lease/5)
		}
		for range 60 {
			b.publish("report")
			time.Sleep(time.Second)
		}
		busy := b.queue.asks()[len(idle)+1:]
		// A slot ends each of 60, and the others last 750 ms or longer.
		if slices.Max(busy) > time.Second+100*time.Millisecond || len(busy) > 60+80+1 {
			t.Errorf("%d requests in a minute of slots, the longest of %v", len(busy), slices.Max(busy))
		}
		_ = stop()
	})
}

// Slots that arrive one by one share requests.
func TestATrickleOfSlotsSharesRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Concurrency = 16
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
		stop := b.run()
		const slots = 800
		for i := range slots {
			at := time.Now().Add(-time.Duration(i) * time.Second)
			b.queue.add(core.Message{Slot: job.NewSlot("report", at), JobRevision: 1, Due: at})
			time.Sleep(10 * time.Millisecond)
		}
		b.settled(slots)
		_ = stop()
		if n := len(b.queue.asks()); n > slots/4 {
			t.Errorf("%d requests for %d slots", n, slots)
		}
	})
}

// slowLedger delays each write by a millisecond, as a broker does.
func (b *bench) slowLedger() {
	b.ledger.before = func(job.Record, uint64) error { time.Sleep(time.Millisecond); return nil }
}

func TestShortHandlersAreAskedForAheadAndClaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.slowLedger()
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
		b.backlog(2000)
		stop := b.run()
		began := time.Now()
		b.settled(2000)
		took := time.Since(began)
		_ = stop()
		// One by one, four permits would take 2000/4 claims of 1 ms.
		if took > 400*time.Millisecond {
			t.Errorf("2000 slots took %v: the places waited for the broker", took)
		}
	})
}

// backlog adds n slots.
func (b *bench) backlog(n int) {
	for i := range n {
		at := time.Now().Add(-time.Duration(i) * time.Second)
		b.queue.add(core.Message{Slot: job.NewSlot("report", at), JobRevision: 1, Due: at})
	}
}

// Slots that were claimed ahead of handlers that turn out slow are released for other
// workers, and their attempts do not count.
func TestSlotsClaimedAheadOfSlowHandlersAreReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.slowLedger()
		slow := make(chan struct{})
		started, most := 0, 0
		b.handle(job.Job{Name: "report"}, func(ctx context.Context, run job.Run) error {
			b.mu.Lock()
			started++
			mine := started
			most = max(most, run.Attempt)
			b.mu.Unlock()
			if mine <= 500 {
				return nil
			}
			select {
			case <-slow:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		b.backlog(1000)
		stop := b.run()
		time.Sleep(10 * time.Second)
		b.mu.Lock()
		running := started - 500
		b.mu.Unlock()
		if running != 4 {
			t.Errorf("%d slow handlers run, want the four that there are places for", running)
		}
		held := b.cfg.Table.Len("A")
		if held > 8 {
			t.Errorf("%d slots are held, want little more than run", held)
		}
		close(slow)
		for range 1000 {
			if acks(b.queue.verdicts()) == 1000 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		_ = stop()
		if n := acks(b.queue.verdicts()); n != 1000 || started != 1000 || most != 1 {
			t.Errorf("%d slots acked, %d starts, the latest at attempt %d; want 1000, 1000 and 1", n, started, most)
		}
	})
}

func acks(verdicts []string) (n int) {
	for _, v := range verdicts {
		if strings.HasPrefix(v, "ack ") {
			n++
		}
	}
	return n
}

func TestSeveralSourcesShareThePlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		timers := newQueue()
		b.cfg.Sources = append(b.cfg.Sources, func(context.Context) (consumer.Source, error) { return timers.source(), nil })
		running, most := 0, 0
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error {
			b.mu.Lock()
			running++
			most = max(most, running)
			b.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			b.mu.Lock()
			running--
			b.mu.Unlock()
			return nil
		})
		b.backlog(100)
		for i := range 100 {
			timers.add(core.Message{Slot: job.Slot{Job: "report", Token: fmt.Sprint(i)}, JobRevision: 1})
		}
		stop := b.run()
		for range 1000 {
			if acks(b.queue.verdicts()) == 100 && acks(timers.verdicts()) == 100 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		_ = stop()
		if x, y := acks(b.queue.verdicts()), acks(timers.verdicts()); x != 100 || y != 100 || most > 4 {
			t.Errorf("%d and %d slots acked, at most %d ran at once; want 100, 100, 4", x, y, most)
		}
	})
}

// A source without messages leaves the permits to the other from the start. Else a queue
// would be drained one slot at a time until that source's request is over.
func TestASourceOfWhichNothingHasComeLeavesThePlacesToTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.slowLedger()
		b.cfg.Concurrency = 32
		timers := newQueue()
		b.cfg.Sources = append(b.cfg.Sources, func(context.Context) (consumer.Source, error) { return timers.source(), nil })
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
		b.backlog(2000)
		stop := b.run()
		b.settled(2000)
		_ = stop()
		if timers.mostOut > 32/8 {
			t.Errorf("%d were asked for where there are none, of 32 places", timers.mostOut)
		}
	})
}

// A source that does not exist is opened again later, and takes no permits from the other.
func TestASourceThatIsNotThereIsLookedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		timers, looked := newQueue(), 0
		b.cfg.Sources = append(b.cfg.Sources, func(context.Context) (consumer.Source, error) {
			if looked++; looked == 1 {
				return nil, nil
			}
			return timers.source(), nil
		})
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
		timers.add(core.Message{Slot: job.Slot{Job: "report", Token: "later"}, JobRevision: 1})
		stop := b.run()
		b.publish("report")
		b.settled(1)
		time.Sleep(2 * time.Minute)
		_ = stop()
		if v := timers.verdicts(); len(v) != 1 {
			t.Errorf("the source that came later said %q", v)
		}
	})
}

// A broker that restarts counts AckWait from the age of what it has delivered,
// unless it was marked.
func TestAMessageThatIsOldWhenItComesIsMarkedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { time.Sleep(time.Second); return nil })
		slot := b.publish("report")
		time.Sleep(lease / 2)
		stop := b.run()
		b.settled(1)
		_ = stop()
		if said := b.queue.said(); !slices.Equal(said, []string{"wpi " + slot.ID(), "ack " + slot.ID()}) {
			t.Errorf("said %q, want one mark within the second that it ran, and the ack", said)
		}
	})
}

// A deposed leader delivers on a request that the next leader has ended.
func TestAMessageThatComesAfterItsRequestIsOverIsServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
		b.cfg.Sources[0] = func(context.Context) (consumer.Source, error) { return &deposed{b.queue.source()}, nil }
		slot := b.publish("report")
		stop := b.run()
		b.settled(1)
		_ = stop()
		if v := b.queue.verdicts(); len(v) != 1 || v[0] != "ack "+slot.ID() || time.Since(startOfBubble) > lease/2 {
			t.Errorf("verdicts %q after %v, want an ack long before the lease", v, time.Since(startOfBubble))
		}
	})
}

// deposed ends each request before it delivers on it.
type deposed struct{ *source }

func (s *deposed) Ask(lane, _ int, _ time.Duration) error {
	m := s.q.next()
	s.serving.Go(func() {
		time.Sleep(100 * time.Millisecond)
		s.ended(lane, nil)
		if m != nil {
			s.message(lane, delivered{m, m.deliver()})
		}
	})
	return nil
}
