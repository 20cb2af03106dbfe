package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// defineAll defines the jobs in the memory of w.
func (w *waitingRoom) defineAll(t *testing.T, jobs ...job.Job) {
	t.Helper()
	for _, j := range jobs {
		if _, err := w.store.Jobs().Write(t.Context(), plans.Definition{Job: j, Nonce: "n"}, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// lastOfTail returns the end of the slot's tail.
func lastOfTail(ctx context.Context, c *client.Client, id string) (d client.SlotDetails, err error) {
	for p, failed := range c.Tail(ctx, id) {
		if err = failed; err == nil && p.Outcome != nil {
			d = *p.Outcome
		}
	}
	return d, err
}

func TestWaitAndTailRefuseTheSameSlotsAndNameTheReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaitingRoom()
		w.defineAll(t,
			job.Job{Name: "load", Schedule: "@hourly"}, job.Job{Name: "split", Schedule: "@hourly", Shards: 3},
			job.Job{Name: "sum", After: []string{"load", "split"}}, job.Job{Name: "send", After: []string{"sum"}},
			job.Job{Name: "manual", Schedule: job.OnDemand},
			job.Job{Name: "hen", After: []string{"egg"}}, job.Job{Name: "egg", After: []string{"hen"}},
		)
		hour := time.Now().UTC().Truncate(time.Hour)
		at := func(name string, t time.Time) string { return job.NewSlot(name, t).ID() }
		w.record(t, job.NewSlot("load", hour), job.Failed)
		w.record(t, job.Slot{Job: "load", Token: "runs"}, job.Running)
		w.record(t, job.Slot{Job: "split", Token: "runs"}, job.Succeeded)
		next := hour.Add(time.Hour)
		for id, want := range map[string]string{
			at("load", next.Add(time.Second)):              `it is not in the plan of job load: schedule "@hourly", timezone UTC`,
			at("load", hour.Add(-time.Hour)):               "it was due at",
			at("nosuch", next):                             "job nosuch: ",
			at("manual", next):                             "job manual has no schedule: it starts when triggered",
			"manual:@k":                                    "no run of job manual with the key k was ordered",
			job.NewSlot("load", next).WithShard(1, 2).ID(): "job load does not split its slots into 2 shards",
			at("send", next.Add(time.Second)):              `it is not in the plan of job load`,
			at("send", hour):                               "it comes after " + at("load", hour) + ", which ended failed",
			at("hen", next):                                "job hen comes after itself",

			// These can still come.
			at("load", next): "", at("send", next): "", "send:@runs": "", job.NewSlot("split", next).WithShard(1, 3).ID(): "",
		} {
			for what, do := range map[string]func(context.Context, string) (client.SlotDetails, error){
				"wait": w.Wait,
				"tail": func(ctx context.Context, id string) (client.SlotDetails, error) { return lastOfTail(ctx, w.Client, id) },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, err := do(ctx, id)
				switch {
				case want == "" && !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("%s %s: %v; it may still come", what, id, err)
				case want != "" && (!errors.Is(err, job.ErrNotFound) || !strings.Contains(err.Error(), want)):
					t.Errorf("%s %s: %v; want %q", what, id, err, want)
				}
				cancel()
			}
		}
	})
}

func TestWaitAndTailEndIfASlotBeforeFailsMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaitingRoom()
		w.defineAll(t, job.Job{Name: "load", Schedule: "@hourly"}, job.Job{Name: "sum", After: []string{"load"}}, job.Job{Name: "send", After: []string{"sum"}})
		next := time.Now().UTC().Truncate(time.Hour).Add(time.Hour)
		ended := make(chan error, 4)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		for _, name := range []string{"sum", "send"} {
			go func() {
				_, err := w.Wait(ctx, job.NewSlot(name, next).ID())
				ended <- err
			}()
			go func() {
				_, err := lastOfTail(ctx, w.Client, job.NewSlot(name, next).ID())
				ended <- err
			}()
		}
		time.Sleep(time.Until(next))
		w.record(t, job.NewSlot("load", next), job.Running)
		time.Sleep(time.Minute)
		w.record(t, job.NewSlot("load", next), job.Failed)
		for range cap(ended) {
			if err := <-ended; !errors.Is(err, job.ErrNotFound) || !strings.Contains(err.Error(), "which ended failed") {
				t.Error(err)
			}
		}
	})
}

// An edit moves the slot, or the slots before it, to another time.
func TestWaitEndsIfAnEditTakesTheSlotOutOfThePlan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaitingRoom()
		w.defineAll(t, job.Job{Name: "load", Schedule: "@hourly"}, job.Job{Name: "sum", After: []string{"load"}})
		next := time.Now().UTC().Truncate(time.Hour).Add(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		ended := make(chan error, 2)
		for _, name := range []string{"load", "sum"} {
			go func() {
				_, err := w.Wait(ctx, job.NewSlot(name, next).ID())
				ended <- err
			}()
		}
		time.Sleep(time.Minute)
		for _, name := range []string{"load", "sum"} {
			_, revision, err := w.store.Jobs().Read(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			edited := job.Job{Name: name, Schedule: "30 3 * * *"}
			if _, err := w.store.Jobs().Write(t.Context(), plans.Definition{Job: edited, Nonce: "n2"}, revision); err != nil {
				t.Fatal(err)
			}
		}
		for range cap(ended) {
			if err := <-ended; !errors.Is(err, job.ErrNotFound) || !strings.Contains(err.Error(), "it is not in the plan") {
				t.Error(err)
			}
		}
	})
}
