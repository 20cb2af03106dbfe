package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// waitingRoom is a namespace in memory with the events of one job, and a client.
type waitingRoom struct {
	*client.Client
	attach.News // only Follow and Reconnected
	store       *memstore.Store

	mu        sync.Mutex
	followers map[int]func(job.Event)
	next      int
	reconnect chan struct{}
}

func newWaitingRoom() *waitingRoom {
	w := &waitingRoom{store: memstore.New(), followers: map[int]func(job.Event){}, reconnect: make(chan struct{})}
	w.Client = client.Attach(attach.Parts{
		Jobs: w.store.Jobs(), Ledger: w.store.Ledger(), Slots: noSlots{}, Timers: noTimers{}, News: w,
		Settings: job.Settings{}.WithDefaults(), Now: func(context.Context) (time.Time, error) { return time.Now(), nil },
	})
	return w
}

// noSlots is a stream without messages.
type noSlots struct{ attach.Slots }

func (noSlots) Waiting(context.Context, stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return func(func(stream.WaitingSlot, error) bool) {}
}

// noTimers has no triggered run for later.
type noTimers struct{ attach.Timers }

func (noTimers) Read(context.Context, job.Slot) (stream.Timer, uint64, error) {
	return stream.Timer{}, 0, job.ErrNotFound
}

func (noTimers) Waiting(context.Context, stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return noSlots{}.Waiting(context.Background(), stream.WaitingFilter{})
}

func (w *waitingRoom) Follow(_ string, f func(job.Event)) (func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	n := w.next
	w.followers[n] = f
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.followers, n)
	}, nil
}

func (w *waitingRoom) Reconnected() <-chan struct{} { return w.reconnect }

func (w *waitingRoom) subscriptions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.followers)
}

func (w *waitingRoom) record(t *testing.T, s job.Slot, state job.State) {
	t.Helper()
	_, revision, err := w.store.Ledger().Read(t.Context(), s)
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		t.Fatal(err)
	}
	r := job.Record{Slot: s, State: state, Attempt: 1, Node: "web1", Nonce: fmt.Sprint(state, revision)}
	if _, err := w.store.Ledger().Write(t.Context(), r, revision); err != nil {
		t.Fatal(err)
	}
}

func (w *waitingRoom) tell(s job.Slot, kind job.EventKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.followers {
		f(job.Event{Kind: kind, ID: s.ID(), Job: s.Job})
	}
}

func TestWaitReturnsAtTheEventOfTheOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, slot := newWaitingRoom(), job.NewSlot("report", time.Now())
		w.record(t, slot, job.Running)
		began := time.Now()
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				got, err := w.Wait(t.Context(), slot.ID())
				if err != nil || got.State != job.Failed || got.ID != slot.ID() {
					t.Errorf("%+v, %v; want it failed", got, err)
				}
			})
		}
		synctest.Wait()
		if n := w.subscriptions(); n != 1 {
			t.Errorf("%d subscriptions for one job", n)
		}
		w.tell(slot, job.EventKind(job.Retrying))
		w.record(t, slot, job.Failed)
		w.tell(slot, job.EventFailed)
		callers.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("returned %v after the outcome was told", took)
		}
		if n := w.subscriptions(); n != 0 {
			t.Errorf("%d subscriptions afterwards", n)
		}
	})
}

func TestWaitReadsAgainWhenAnEventIsLostOrTheConnectionWas(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(w *waitingRoom){
		"an event is lost": func(*waitingRoom) {}, "a reconnect": func(w *waitingRoom) { close(w.reconnect) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, slot := newWaitingRoom(), job.NewSlot("report", time.Now())
				w.record(t, slot, job.Running)
				ended := make(chan time.Time)
				go func() {
					if got, err := w.Wait(t.Context(), slot.ID()); err != nil || got.State != job.Succeeded {
						t.Errorf("%+v, %v", got, err)
					}
					ended <- time.Now()
				}()
				time.Sleep(time.Minute)
				synctest.Wait()
				recorded := time.Now()
				w.record(t, slot, job.Succeeded)
				most := 10 * time.Second
				if name == "a reconnect" {
					most = 0
				}
				lose(w)
				if late := (<-ended).Sub(recorded); late > most {
					t.Errorf("returned %v after the outcome, want at most %v", late, most)
				}
			})
		})
	}
}

func TestWaitEndsWithItsContextAndShowsTheSlotAsItWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, slot := newWaitingRoom(), job.NewSlot("report", time.Now())
		w.record(t, slot, job.Running)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		got, err := w.Wait(ctx, slot.ID())
		if !errors.Is(err, context.DeadlineExceeded) || got.State != job.Running || got.Node != "web1" {
			t.Errorf("%+v, %v; want it running at the deadline", got, err)
		}
	})
}

func TestWaitShowsAPendingSlotAtItsDeadline(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	run, err := s.Trigger(t.Context(), "report", client.TriggerOptions{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	next := time.Now().UTC().Truncate(time.Hour).Add(2 * time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var waits sync.WaitGroup
	for what, wait := range map[string]func() (client.SlotDetails, error){
		"the run": func() (client.SlotDetails, error) { return run.Wait(ctx) },
		"its ID":  func() (client.SlotDetails, error) { return s.Wait(ctx, run.ID()) },
	} {
		waits.Go(func() {
			got, err := wait()
			if !errors.Is(err, context.DeadlineExceeded) || got.ID != run.ID() || got.Job != "report" || got.State != job.Pending || got.Queue != job.DefaultQueue {
				t.Errorf("%s: %+v, %v; want it pending", what, got.SlotRow, err)
			}
		})
	}
	waits.Go(func() {
		got, err := s.Wait(ctx, job.NewSlot("report", next).ID())
		if !errors.Is(err, context.DeadlineExceeded) || got.Job != "report" || got.State != "" || !got.Slot.Equal(next) || !got.Due.Equal(next) {
			t.Errorf("a planned slot: %+v, %v", got.SlotRow, err)
		}
	})
	waits.Wait()
}

func TestWaitKnowsWhatWillNotCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaitingRoom()
		d := plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}, Nonce: "n"}
		if _, err := w.store.Jobs().Write(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
		next := time.Now().Truncate(time.Hour).Add(time.Hour)
		for id, want := range map[string]error{
			"report:@unknown": job.ErrNotFound, "other:@x": job.ErrNotFound, "nonsense": job.ErrInvalid,
			job.NewSlot("report", next.Add(time.Minute)).ID():     job.ErrNotFound,
			job.NewSlot("report", next.Add(-1000*time.Hour)).ID(): job.ErrNotFound,
			job.NewSlot("report", next.Add(time.Hour)).ID():       context.DeadlineExceeded,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := w.Wait(ctx, id); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", id, err, want)
			}
			cancel()
		}
	})
}

// The broker restarts while the run waits, and while it runs.
func TestWaitSurvivesRestartsOfTheBroker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	c, err := client.New(t.Context(), natstest.Connect(t, s.server.ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.Trigger(t.Context(), "report", client.TriggerOptions{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		client.SlotDetails
		err error
	}
	ended := make(chan result)
	go func() {
		got, err := run.Wait(t.Context())
		ended <- result{got, err}
	}()
	s.server.Restart()
	s.record(t, run.Slot, job.Succeeded)
	s.server.Restart()
	select {
	case got := <-ended:
		if got.err != nil || got.State != job.Succeeded {
			t.Errorf("%+v, %v", got.SlotDetails, got.err)
		}
	case <-time.After(natstest.Patience):
		t.Error("still waiting")
	}
}

func TestWaitOfARunThatWasNotOrderedIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := (client.Run{}).Wait(t.Context()); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("it gives %v, want %v", err, job.ErrInvalid)
	}
}

func TestExpectTellsAPlannedSlotFromOneThatWillNeverBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaitingRoom()
		d := plans.Definition{Job: job.Job{Name: "report", Schedule: "0 * * * *"}.WithDefaults(), Owner: "file", Node: "web1", Nonce: "n"}
		if _, err := w.store.Jobs().Write(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
		hour := time.Now().Truncate(time.Hour)
		w.record(t, job.NewSlot("report", hour), job.Running)
		for id, want := range map[string]job.State{
			job.NewSlot("report", hour).ID():                              job.Running,
			job.NewSlot("report", hour.Add(2*time.Hour)).ID():             job.Pending,
			job.NewSlot("report", hour.Add(2*time.Hour+time.Second)).ID(): "",
			job.NewSlot("report", hour.Add(-2*time.Hour)).ID():            "",
			"report:@nosuch": "", "nosuch:@x": "",
		} {
			got, err := w.Expect(t.Context(), id)
			if got.State != want || (want == "") != errors.Is(err, job.ErrNotFound) {
				t.Errorf("%s: %q, %v; want %q", id, got.State, err, want)
			}
		}
	})
}
