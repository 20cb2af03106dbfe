package consumer_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

// inTurn fails the slots whose numbers are named, from 1.
func inTurn(failing ...int) job.Handler {
	n := 0
	return func(context.Context, job.Run) error {
		n++
		for _, f := range failing {
			if f == n {
				return job.Permanent(errors.New("boom"))
			}
		}
		return nil
	}
}

// of returns the alerts of a kind, oldest first.
func (b *bench) of(kind job.State) (found []job.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range b.alerted() {
		if b.alerts[id].Alert == kind {
			found = append(found, b.alerts[id])
		}
	}
	slices.SortFunc(found, func(a, b job.Event) int { return cmp.Compare(a.Revision, b.Revision) })
	return found
}

func TestTheFirstSuccessAfterAFailureIsARecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.AlertStates = memstore.New().AlertStates()
		b.handle(job.Job{Name: "report", OnRecovered: target}, inTurn(2, 3, 6))
		stop := b.run()
		var slots []job.Slot
		for i := range 8 {
			slots = append(slots, b.publish("report"))
			b.settled(i + 1)
			time.Sleep(time.Second)
		}
		_ = stop()
		got := b.of(job.AlertRecovered)
		if len(b.alerts) != 2 || len(got) != 2 {
			t.Fatalf("published %v, want two recoveries", b.alerted())
		}
		for i, want := range [][2]int{{3, 2}, {6, 5}} { // the slot that succeeded, the one that failed before
			if got[i].ID != slots[want[0]].ID() || got[i].Since != slots[want[1]].ID() || got[i].Node != "A" {
				t.Errorf("recovery %d: %+v", i, got[i])
			}
		}
	})
}

// The worker crashes between the outcome and the ack: the message comes again, to a worker that
// finds the outcome.
func TestARecoveryIsNeitherLostNorSentTwiceInACrash(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string][]memstore.Fault{
		"no fault":                  nil,
		"the first write is lost":   {memstore.LostRequest},
		"the first answer is lost":  {memstore.LostAnswer},
		"the second write is lost":  {memstore.None, memstore.LostRequest},
		"the second answer is lost": {memstore.None, memstore.LostAnswer},
		"it is refused":             {memstore.None, memstore.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				store := memstore.New()
				states := store.AlertStates()
				states.FailNext(faults...)
				b.cfg.AlertStates = states
				b.handle(job.Job{Name: "report", OnRecovered: target}, inTurn(1))
				stop := b.run()
				failed := job.NewSlot("report", time.Now())
				for range 2 {
					b.queue.add(core.Message{Slot: failed, JobRevision: 1, Due: failed.At})
				}
				b.until(func() bool { s, _, err := states.Read(t.Context(), "report"); return err == nil && s.Failed })
				good := job.NewSlot("report", time.Now().Add(time.Minute))
				time.Sleep(time.Minute)
				for range 3 {
					b.queue.add(core.Message{Slot: good, JobRevision: 1, Due: good.At})
				}
				b.until(func() bool { s, _, err := states.Read(t.Context(), "report"); return err == nil && !s.Failed })
				time.Sleep(5 * time.Minute)
				_ = stop()
				got := b.of(job.AlertRecovered)
				if len(got) != 1 || got[0].ID != good.ID() || got[0].Since != failed.ID() {
					t.Errorf("published %v", b.alerted())
				}
			})
		})
	}
}

// The stream refuses the alert for a while.
func TestARecoveryIsNotForgottenWhenItCannotBeTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.AlertStates = memstore.New().AlertStates()
		b.handle(job.Job{Name: "report", OnRecovered: target}, inTurn(1))
		stop := b.run()
		b.publish("report")
		b.settled(1)
		time.Sleep(time.Second)
		b.refuse = errors.New("the stream is full")
		slot := b.publish("report")
		v := b.settled(3)
		_ = stop()
		if got := b.of(job.AlertRecovered); len(got) != 1 || v[1] != "later(2s) "+slot.ID() || v[2] != "ack "+slot.ID() {
			t.Errorf("verdicts %q, alerts %v", v, b.alerted())
		}
	})
}

// until waits, in fake time.
func (b *bench) until(ok func() bool) {
	b.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(time.Second)
	}
	b.Fatal("it does not happen")
}

func TestASuccessHasTheAlertsThatItsJobAsksFor(t *testing.T) {
	t.Parallel()
	hook := &job.AlertHTTP{URL: "https://example.com/ping"}
	for name, c := range map[string]struct {
		job  job.Job
		want string
	}{
		"success":               {job.Job{OnSuccess: target}, "succeeded"},
		"heartbeat":             {job.Job{Heartbeat: hook}, "heartbeat"},
		"both":                  {job.Job{OnSuccess: target, Heartbeat: hook}, "heartbeat succeeded"},
		"recovery, no failure":  {job.Job{OnRecovered: target}, ""},
		"only those of failure": {job.Job{OnFailure: target, OnMissed: target, OnLate: target}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.cfg.AlertStates = memstore.New().AlertStates()
				c.job.Name = "report"
				b.handle(c.job, func(_ context.Context, run job.Run) error {
					_, err := run.Output.Write([]byte(strings.Repeat("x", 4000) + "the end"))
					return err
				})
				stop := b.run()
				slot := b.publish("report")
				b.settled(1)
				_ = stop()
				var kinds []string
				for _, id := range b.alerted() {
					e := b.alerts[id]
					kinds = append(kinds, string(e.Alert))
					if e.ID != slot.ID() || e.Revision == 0 || !strings.HasSuffix(e.Output, "the end") || len(e.Output) > 3<<10 {
						t.Errorf("alert %+v", e)
					}
				}
				if got := strings.Join(kinds, " "); got != c.want {
					t.Errorf("published %q, want %q", got, c.want)
				}
			})
		})
	}
}

// A login of an older version may not write the state: the outcome is recorded all the same.
func TestAWorkerWithoutTheRightToNoteFailuresGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.AlertStates = deniedStates{}
		b.handle(job.Job{Name: "report", OnRecovered: target, OnFailure: target}, inTurn(1))
		stop := b.run()
		slot := b.publish("report")
		v := b.settled(1)
		_ = stop()
		if v[0] != "ack "+slot.ID() || len(b.of(job.Failed)) != 1 {
			t.Errorf("%q, %v", v, b.alerted())
		}
	})
}

type deniedStates struct{}

func (deniedStates) Read(context.Context, string) (exchange.AlertState, uint64, error) {
	return exchange.AlertState{}, 0, job.ErrNotFound
}

func (deniedStates) Write(context.Context, exchange.AlertState, uint64) (uint64, error) {
	return 0, job.ErrDenied
}
