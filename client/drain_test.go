package client_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// noMessages is a fleet in whose streams nothing waits.
type noMessages struct{ attach.Fleet }

func (noMessages) Waiting(context.Context, stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return noSlots{}.Waiting(context.Background(), stream.WaitingFilter{})
}

func (noMessages) EmitAndFlush(job.Event) error { return nil }

// newDrainRoom returns a namespace with the paused job report, and when and at which revision it was
// paused.
func newDrainRoom(t *testing.T) (w *waitingRoom, paused time.Time, revision uint64) {
	t.Helper()
	w = newWaitingRoom()
	w.Client = client.Attach(attach.Parts{
		Jobs: w.store.Jobs(), Ledger: w.store.Ledger(), Slots: noSlots{}, Timers: noTimers{}, News: w, Fleet: noMessages{}, Watermark: w.store.Watermark(),
		Settings: job.Settings{}.WithDefaults(), Now: func(context.Context) (time.Time, error) { return time.Now(), nil },
	})
	d := plans.Definition{Job: job.Job{Name: "report", Schedule: "* * * * * *"}.WithDefaults(), Owner: "file", Node: "web1", Nonce: "n"}
	if _, err := w.store.Jobs().Write(t.Context(), d, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Pause(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
	e, _, err := w.store.Jobs().Read(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	return w, e.Time, e.Revision
}

func (w *waitingRoom) mark(t *testing.T, m exchange.Watermark) {
	t.Helper()
	_, revision, err := w.store.Watermark().Read(t.Context())
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		t.Fatal(err)
	}
	m.Nonce, m.Node = m.Time.String(), "web1"
	if _, err := w.store.Watermark().Write(t.Context(), m, revision); err != nil {
		t.Fatal(err)
	}
}

// A slot fell due before the pause, while the producers had no broker.
func TestDrainWaitsForASlotThatIsPublishedAfterThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, paused, revision := newDrainRoom(t)
		slot := job.NewSlot("report", paused.Truncate(time.Second))
		drained := make(chan error, 1)
		go func() { drained <- w.Drain(t.Context(), "report") }()
		waits := func(what string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			select {
			case err := <-drained:
				t.Fatalf("drained %s: %v", what, err)
			default:
			}
		}
		waits("without a watermark")
		w.mark(t, exchange.Watermark{Time: paused.Add(-time.Second), Revision: revision})
		waits("before the watermark has passed the pause")
		w.mark(t, exchange.Watermark{Time: paused.Add(-time.Millisecond), Revision: revision + 1})
		waits("just before it")
		w.record(t, slot, job.Running)
		w.mark(t, exchange.Watermark{Time: paused.Add(time.Second), Revision: revision + 1})
		waits("while the slot runs")
		w.record(t, slot, job.Succeeded)
		w.tell(slot, job.EventSucceeded)
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
}

func TestDrainRefusesAJobThatIsNotPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, paused, revision := newDrainRoom(t)
		slot := job.NewSlot("report", paused.Truncate(time.Second))
		w.record(t, slot, job.Running)
		w.mark(t, exchange.Watermark{Time: paused.Add(time.Second), Revision: revision})
		drained := make(chan error, 1)
		go func() { drained <- w.Drain(t.Context(), "report") }()
		synctest.Wait()
		if _, err := w.Resume(t.Context(), "report", client.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
		w.record(t, slot, job.Succeeded)
		w.tell(slot, job.EventSucceeded)
		if err := <-drained; !errors.Is(err, job.ErrInvalid) {
			t.Errorf("resumed meanwhile: %v", err)
		}
		if err := w.Drain(t.Context(), "report"); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("not paused: %v", err)
		}
		if err := w.Drain(t.Context(), "nosuch"); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("no such job: %v", err)
		}
	})
}
