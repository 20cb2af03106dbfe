package consumer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

func shadow(context.Context, job.Run) error { return fmt.Errorf("not now: %w", job.ErrShadow) }

func TestAShadowSucceedsWithAMarkAndWithoutAnAlert(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.AlertStates = memstore.New().AlertStates()
		b.handle(job.Job{Name: "report", OnSuccess: target, OnRecovered: target, Heartbeat: &job.AlertHTTP{URL: "http://127.0.0.1/"}}, shadow)
		b.handle(job.Job{Name: "send", After: []string{"report"}}, succeed)
		stop := b.run()
		slot := b.publish("report")
		b.settled(2)
		_ = stop()
		if r := b.record(slot); r.State != job.Succeeded || !r.IsShadow() || r.Shadow != 1 || r.Error != "" || r.Attempts[0].Error != "" {
			t.Errorf("%+v", r)
		}
		if got := b.alerted(); len(got) > 0 {
			t.Errorf("alerts %v", got)
		}
		if r := b.record(job.NewSlot("send", slot.At)); r.State != job.Succeeded || r.IsShadow() {
			t.Errorf("the slot that comes after it: %+v", r)
		}
	})
}

func TestASplitSlotIsAShadowIfAllItsShardsAre(t *testing.T) {
	t.Parallel()
	for name, works := range map[string]int{"all": 0, "one did the work": 2} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.handle(job.Job{Name: "report", Shards: 3}, func(ctx context.Context, run job.Run) error {
				if run.Shard == works {
					return nil
				}
				return shadow(ctx, run)
			})
			stop := b.run()
			slot := b.split("report", 3)
			b.settled(3)
			_ = stop()
			if r := b.record(slot); r.State != job.Succeeded || r.IsShadow() != (works == 0) {
				t.Errorf("%s: %+v", name, r)
			}
		})
	}
}

// The writer of a later attempt may be a program that keeps the member shadow without knowing it.
func TestASlotIsNoShadowAfterALaterAttemptDidTheWork(t *testing.T) {
	t.Parallel()
	r := core.Complete(job.Record{Attempt: 2, Shadow: 1, Attempts: []job.Attempt{{Number: 1}, {Number: 2}}}, 7, time.Now(), horizon, core.Result{})
	if r.State != job.Succeeded || r.IsShadow() {
		t.Errorf("%+v", r)
	}
}
