package cronce_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// triggered is a job that is not due for years, and its runs so far.
type triggered struct {
	mu   sync.Mutex
	runs []job.Run
}

func (r *triggered) handle(t *testing.T, s *cronce.Scheduler) {
	t.Helper()
	j := job.Job{Name: "invoice", Schedule: "@at 2100-01-01T00:00:00Z", Payload: json.RawMessage(`"own"`)}
	handle(t, s, j, func(_ context.Context, run job.Run) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.runs = append(r.runs, run)
		return nil
	})
}

func (r *triggered) wait(t *testing.T, n int) []job.Run {
	t.Helper()
	natstest.Eventually(t, "runs", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.runs) >= n
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.runs) != n {
		t.Fatalf("%d runs, want %d: %+v", len(r.runs), n, r.runs)
	}
	return r.runs
}

// A key remains one run if it is triggered again after the server has forgotten its message ID,
// whether the run was to start at once or later.
func TestTriggerOfOneKeyIsOneRunFromAnyReplica(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	var ran triggered
	replicas := make([]*cronce.Scheduler, 3)
	for i := range replicas {
		replicas[i], _ = scheduler(t, srv)
		ran.handle(t, replicas[i])
	}
	for _, s := range replicas[:2] { // the third only triggers
		running(t, s)
	}
	soon := time.Now().Add(2 * time.Second)
	trigger := func(key string, at time.Time, payload string) {
		t.Helper()
		for _, s := range replicas {
			if _, err := s.Trigger(t.Context(), "invoice", cronce.TriggerOptions{Key: key, At: at, Payload: json.RawMessage(payload)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	trigger("later", soon, `{"n":2}`)
	trigger("now", time.Time{}, `{"n":1}`)
	runs := map[string]job.Run{} // on a busy machine, the later one may be first
	for _, run := range ran.wait(t, 2) {
		runs[run.Slot.ID()] = run
	}
	if first := runs["invoice:@now"]; string(first.Payload) != `{"n":1}` || !first.Due.IsZero() {
		t.Errorf("ran %+v, want invoice:@now", runs)
	}
	if second := runs["invoice:@later"]; string(second.Payload) != `{"n":2}` || !second.Due.Equal(soon) || time.Now().Before(soon) {
		t.Errorf("ran %+v, want invoice:@later at %v", runs, soon)
	}

	srv.Restart() // and its duplicate window is empty
	trigger("now", time.Time{}, "")
	trigger("later", soon.Add(time.Second), "")
	trigger("own", time.Time{}, "")
	if third := ran.wait(t, 3)[2]; third.Slot.Token != "own" || string(third.Payload) != `"own"` {
		t.Errorf("ran %+v, want the third key with the job's own payload", third)
	}
}

// On a server without message schedules, a trigger for a later time fails, and a trigger for now
// works.
func TestTriggerBelowTheServerThatKnowsSchedules(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, err := cronce.New(t.Context(), srv.Conn(natstest.Version("2.11.9")))
	if err != nil {
		t.Fatal(err)
	}
	var ran triggered
	ran.handle(t, s)
	running(t, s)
	natstest.Eventually(t, "the job in the registry", func() bool {
		_, err := s.Trigger(t.Context(), "invoice", cronce.TriggerOptions{Key: "now"})
		return err == nil
	})
	if _, err := s.Trigger(t.Context(), "invoice", cronce.TriggerOptions{Key: "later", At: time.Now().Add(time.Hour)}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want unsupported", err)
	}
	ran.wait(t, 1)
}

func TestTriggerReturnsTheRunThatItOrdered(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	var ran triggered
	s, _ := scheduler(t, srv)
	ran.handle(t, s)
	running(t, s)
	first, err := s.Trigger(t.Context(), "invoice", cronce.TriggerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if runs := ran.wait(t, 1); first.Slot != runs[0].Slot || first.Slot.Token == "" || !first.New || first.State != job.Pending {
		t.Errorf("%+v was ordered, %s ran", first, runs[0].Slot)
	}
	again, err := s.Trigger(t.Context(), "invoice", cronce.TriggerOptions{Key: first.Slot.Token})
	if err != nil || again.New || again.Slot != first.Slot {
		t.Errorf("the same key: %+v, %v", again, err)
	}
}

func TestTriggerBeforeRunWaitsForRun(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	var ran triggered
	s, _ := scheduler(t, srv)
	ran.handle(t, s)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Trigger(short, "invoice", cronce.TriggerOptions{}); !errors.Is(err, job.ErrNotFound) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run has not begun: %v", err)
	}
	if _, err := s.Trigger(t.Context(), "other", cronce.TriggerOptions{}); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("a job without a handler here: %v", err)
	}
	ended := make(chan error, 2)
	go func() {
		_, err := s.Trigger(t.Context(), "invoice", cronce.TriggerOptions{Key: "a"})
		ended <- err
	}()
	go func() {
		_, err := s.Client().TriggerMany(t.Context(), "invoice", []client.TriggerOptions{{Key: "b"}})
		ended <- err
	}()
	running(t, s)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	ran.wait(t, 2)
}
