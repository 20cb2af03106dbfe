//go:build long && unix

package integration

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	library "github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// timers is the number of triggers that are set for one instant. CRONCE_TIMERS sets it, as "task timers" does.
func timers(t *testing.T) int {
	text := os.Getenv("CRONCE_TIMERS")
	if text == "" {
		return 1000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// reminders is a job with many triggers for one instant, and counts of what its handler got.
type reminders struct {
	job        string
	ran, wrong atomic.Int64   // with the right payload, and with a wrong one
	starts     []atomic.Int32 // of each trigger
}

func newReminders(job string, n int) *reminders {
	return &reminders{job: job, starts: make([]atomic.Int32, n)}
}

func (m *reminders) handle(_ context.Context, run job.Run) error {
	i, err := strconv.Atoi(string(run.Payload))
	if err != nil || run.Slot.Token != fmt.Sprint("key ", i) {
		m.wrong.Add(1)
		return nil
	}
	m.starts[i].Add(1)
	m.ran.Add(1)
	return nil
}

// set triggers the job once for each key, all for the same instant.
func (m *reminders) set(t *testing.T, s *library.Scheduler, due time.Time) {
	t.Helper()
	began := time.Now()
	var setting sync.WaitGroup
	next := make(chan int)
	for range 16 {
		setting.Go(func() {
			for i := range next {
				if _, err := s.Trigger(t.Context(), m.job, library.TriggerOptions{Key: fmt.Sprint("key ", i), At: due, Payload: []byte(strconv.Itoa(i))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range m.starts {
		next <- i
	}
	close(next)
	setting.Wait()
	t.Logf("set %d in %v", len(m.starts), time.Since(began).Round(time.Millisecond))
}

// Many triggers are set for one instant. The server is killed before that instant, started after it, and killed again
// while the slots run. Each trigger runs once, with its own payload.
func TestTriggersOfTheFutureOutliveTheirServer(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *site) {
		n := timers(t)
		// Each try has four times as long as the one before, until the triggers of one try are all set before their
		// instant.
		var tries []*reminders
		for i := range 4 {
			tries = append(tries, newReminders(fmt.Sprint("remind-", i), n))
		}
		replica := func() *library.Scheduler {
			r, err := library.New(t.Context(), natstest.Connect(t, s.url, quiet), library.WithConcurrency(64))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range tries {
				if err := r.Handle(job.Job{Name: m.job, Schedule: "@yearly", Overlap: job.OverlapAllow}, m.handle); err != nil {
					t.Fatal(err)
				}
			}
			return r
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		run := func() *library.Scheduler {
			r := replica()
			running.Go(func() {
				if err := r.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
			return r
		}
		first := run()
		eventually(t, "the jobs", func() bool {
			_, err := s.bucket("jobs").Get(t.Context(), tries[len(tries)-1].job)
			return err == nil
		})

		var m *reminders
		var due time.Time
		lead := 25*time.Second + time.Duration(n)*3*time.Millisecond // a server that syncs each write takes its time
		for _, m = range tries {
			due = time.Now().Add(lead)
			if m.set(t, first, due); time.Now().Before(due) {
				break
			}
			lead *= 4
		}
		if got := m.ran.Load(); got > 0 {
			t.Fatalf("%d ran before their instant, or were not set in time", got)
		}
		run()
		s.restartServer(func(p *process) {
			p.kill()
			<-time.After(time.Until(due)) // the server is away at the instant
		})
		back := time.Now()
		eventually(t, "a third of the slots to run", func() bool { return m.ran.Load() > int64(n)/3 })
		s.restartServer((*process).kill)
		eventually(t, "all slots to run", func() bool { return m.ran.Load() >= int64(n) })
		t.Logf("ran %d in %v", n, time.Since(back).Round(time.Millisecond))

		states := map[string]int{}
		eventually(t, "all outcomes", func() bool {
			clear(states)
			for _, r := range s.slots("--job", m.job) {
				states[r.State]++
			}
			return states["succeeded"] >= n
		})
		if len(states) != 1 || states["succeeded"] != n || m.wrong.Load() > 0 {
			t.Errorf("states %v of %d, %d with a wrong payload", states, n, m.wrong.Load())
		}
		for i := range m.starts {
			if got := m.starts[i].Load(); got != 1 {
				t.Fatalf("key %d was started %d times, and perhaps others, too; want once", i, got)
			}
		}
	})
}

// quiet keeps the errors of a lost connection out of the test's output.
var quiet = nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
