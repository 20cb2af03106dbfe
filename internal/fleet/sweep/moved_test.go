package sweep_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/job"
)

func worker(queues ...string) exchange.NodeEvent {
	return exchange.NodeEvent{Name: "w", Node: exchange.Node{Name: "w", Worker: true, Queues: queues}}
}

// queue creates a queue, as its first worker does.
func (s *site) queue(name string) {
	s.Helper()
	if _, err := s.Queue(s.Context(), s.SlotStream(), name); err != nil {
		s.Fatal(err)
	}
}

// move moves the job report to a queue.
func (s *site) move(queue string) {
	s.Helper()
	_, revision, err := s.Jobs().Read(s.Context(), "report")
	if err == nil {
		j := job.Job{Name: "report", Schedule: "@hourly", Payload: []byte(`{"n":1}`), Queue: queue}
		_, err = s.Jobs().Write(s.Context(), plans.Definition{Job: j.WithDefaults(), Owner: "file", Node: "x", Nonce: "y"}, revision)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// offeredIn lists the slots that have a message in a queue.
func (s *site) offeredIn(queue string) (slots []string) {
	s.Helper()
	for w, err := range s.Slots().Waiting(s.Context(), stream.WaitingFilter{Queue: queue}) {
		if err != nil {
			s.Fatal(err)
		}
		slots = append(slots, fmt.Sprintf("%s %s", w.Slot, w.Payload))
	}
	slices.Sort(slots)
	return slots
}

func TestASlotInAQueueThatItsJobHasLeftIsOfferedInTheJobsPresentQueue(t *testing.T) {
	s := newSite(t)
	s.queue("default")
	retries, fresh, done, run := slot(1), slot(2), slot(3), job.Slot{Job: "report", Token: "k"}
	s.record(job.Record{Slot: done, State: job.Succeeded})
	for _, m := range []core.Message{{Slot: retries}, {Slot: fresh, Due: fresh.At, CaughtUp: true}, {Slot: done}} {
		s.publish(m)
	}
	if _, err := s.Slots().Publish(t.Context(), "default", core.Message{Slot: run}, []byte(`{"own":1}`)); err != nil {
		t.Fatal(err)
	}
	s.move("bulk")
	s.live = []exchange.NodeEvent{worker("bulk")}
	s.pass()
	if got := s.offeredIn("bulk"); len(got) > 0 {
		t.Fatalf("offered %q at once: a worker may still have the messages", got)
	}
	s.shift = 6 * time.Minute
	s.pass()
	if got, want := s.offeredIn("bulk"), []string{fresh.ID() + " ", retries.ID() + " ", run.ID() + ` {"own":1}`}; !slices.Equal(got, want) {
		t.Fatalf("offered %q, want %q", got, want)
	}
	// With a record, the slot is offered as its record says.
	revision := s.record(job.Record{Slot: retries, State: job.Retrying, Attempt: 1, RetryAt: time.Now().Add(s.shift)})
	for range 2 {
		s.shift += 6 * time.Minute
		s.pass()
	}
	if got := s.offeredIn("bulk"); len(got) != 3 {
		t.Errorf("offered again, although a worker will get the first offer: %q", got)
	}
	s.purge()
	s.publish(core.Message{Slot: retries, Offer: 7})
	s.shift += 6 * time.Minute
	s.pass()
	if got, want := s.messages(), fmt.Sprintf(`%s/r%d {"n":1}`, retries.ID(), revision+2); !slices.Contains(got, want) {
		t.Errorf("the stream has %q, want %q", got, want)
	}
}

func TestASlotStaysInItsQueueUnlessOnlyThePresentQueueOfItsJobHasAWorker(t *testing.T) {
	for name, c := range map[string]struct {
		queue string
		live  []exchange.NodeEvent
	}{
		"both have a worker":                       {"bulk", []exchange.NodeEvent{worker("bulk", "default")}},
		"none has a worker":                        {"bulk", []exchange.NodeEvent{worker("other")}},
		"its own queue is the present one":         {"default", []exchange.NodeEvent{worker("other")}},
		"no worker is known":                       {"bulk", []exchange.NodeEvent{{Name: "p", Node: exchange.Node{Name: "p", Producer: true, Queues: []string{"bulk"}}}}},
		"the record of a live node cannot be read": {"bulk", []exchange.NodeEvent{worker("bulk"), {Name: "x", Err: errors.New("no JSON")}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.queue("default")
			s.publish(core.Message{Slot: slot(1)})
			before := s.messages()
			s.move(c.queue)
			s.live = c.live
			s.shift = 6 * time.Minute
			s.pass()
			s.want(before...)
		})
	}
}

func TestALostSlotIsOfferedInItsOwnQueueWhileThatHasAWorker(t *testing.T) {
	s := newSite(t)
	s.queue("default")
	s.record(job.Record{Slot: slot(1), State: job.Retrying, Attempt: 1, RetryAt: time.Now(), Queue: "default"})
	s.move("bulk")
	s.live = []exchange.NodeEvent{worker("bulk", "default")}
	s.shift = 6 * time.Minute
	for range 2 {
		s.pass()
	}
	if in, other := s.offeredIn("default"), s.offeredIn("bulk"); len(in) != 1 || len(other) != 0 {
		t.Errorf("offered %q in its queue, and %q in the present queue of its job", in, other)
	}
}

// Messages of slots that have ended stay in a queue without workers, and those of jobs that were removed. Each
// pass asks for the present queues of a bounded number of jobs.
func TestASlotBehindManyJobsInAQueueWithoutWorkersIsOfferedInTheEnd(t *testing.T) {
	s := newSite(t)
	s.queue("default")
	var publishing sync.WaitGroup
	for lane := range 10 {
		publishing.Go(func() {
			for i := range sweep.MaxMoved / 10 {
				removed := job.NewSlot(fmt.Sprintf("removed-%d-%d", lane, i), time.Now().Truncate(time.Hour))
				if _, err := s.Slots().Put(t.Context(), "default", core.Message{Slot: removed}, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	publishing.Wait()
	s.publish(core.Message{Slot: slot(1)})
	s.move("bulk")
	s.live = []exchange.NodeEvent{worker("bulk")}
	for range 2 {
		s.shift += 6 * time.Minute
		s.pass()
	}
	if got, want := s.offeredIn("bulk"), []string{slot(1).ID() + " "}; !slices.Equal(got, want) {
		t.Fatalf("offered %q, want %q", got, want)
	}
	later := slot(2)
	s.publish(core.Message{Slot: later})
	for range 3 {
		s.shift += 6 * time.Minute
		s.pass()
	}
	if got := s.offeredIn("bulk"); len(got) != 2 {
		t.Errorf("offered %q, want %s too: the jobs are asked for in turn", got, later)
	}
}
