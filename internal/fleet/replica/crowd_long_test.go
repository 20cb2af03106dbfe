//go:build long

package replica_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// A message that is returned with a delay counts as a pending ack of the consumer. The consumer may have
// enough of them.
func TestTwentyThousandWaitingRetriesDoNotDelayNewSlots(t *testing.T) {
	s := newSite(t)
	s.lease = job.DefaultLease // on a busy machine, a short lease would be lost, and attempts with it
	const waiting = 20_000
	type start struct {
		slot job.Slot
		at   time.Time
	}
	started, failed := make(chan start, 1000), make(chan struct{}, waiting)
	s.replica(func(_ context.Context, run job.Run) error {
		if run.Slot.Job == "busy" {
			failed <- struct{}{}
			return job.RetryAfter(time.Hour, errors.New("not yet"))
		}
		started <- start{run.Slot, time.Now()}
		return nil
	}, func(c *replica.Config) {
		busy := job.Job{Name: "busy", Schedule: "@at 2199-01-01T00:00:00Z", Overlap: job.OverlapAllow}
		c.Jobs = append(c.Jobs, busy)
		c.Handlers = func() []string { return []string{"busy", "report"} }
	})
	waitFor(s, "the first slot", started)
	store := kvtest.Open(t, s.srv.JetStream(), kv.Options{})
	_, revision, err := store.Jobs().Read(t.Context(), "busy")
	if err != nil {
		t.Fatal(err)
	}
	message := func(i int) core.Message {
		return core.Message{Slot: job.Slot{Job: "busy", Token: fmt.Sprint(i)}, JobRevision: revision}
	}
	// Publish at most as many at once as a server on a busy machine answers within a second. The
	// client repeats unanswered requests, so the server would fall further and further behind.
	const atOnce = 200
	for first := 0; first < waiting; first += atOnce {
		var group errgroup.Group
		for i := first; i < first+atOnce; i++ {
			group.Go(func() error {
				_, err := store.Slots().Put(t.Context(), "default", message(i), nil)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		for range atOnce {
			waitFor(s, "all to have failed once", failed)
		}
	}
	natstest.Eventually(t, "all to be returned", func() bool { return s.pending() >= waiting })
	for len(started) > 0 {
		<-started
	}
	for range 3 {
		got := waitFor(s, "a new slot", started)
		// If the consumer had no room, the new slot would wait for the first retry, for an hour.
		if late := got.at.Sub(got.slot.At); late > natstest.Patience {
			t.Errorf("%s started %v late behind %d waiting retries", got.slot, late, waiting)
		}
	}
}

// pending returns the number of unacked messages of the queue.
func (s *site) pending() int {
	s.Helper()
	c, err := s.srv.JetStream().Consumer(s.Context(), "cronce_slots", "default")
	if err != nil {
		s.Fatal(err)
	}
	return c.CachedInfo().NumAckPending
}
