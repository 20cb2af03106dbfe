package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Each state of a record has one event, of the kind of its name, after the record is stored.
func TestEachStateHasOneEvent(t *testing.T) {
	t.Parallel()
	past := func(by time.Duration, m core.Message) func(*bench) job.Slot {
		return func(b *bench) job.Slot {
			m.Slot, m.JobRevision = job.NewSlot("report", time.Now().Add(-by)), 1
			m.Due = m.Slot.At
			b.queue.add(m)
			return m.Slot
		}
	}
	now := func(b *bench) job.Slot { return b.publish("report") }
	for name, c := range map[string]struct {
		publish func(*bench) job.Slot
		returns []error
		edit    func(*bench)
		want    string
	}{
		"done at once":    {publish: now, returns: []error{nil}, want: "[succeeded]"},
		"done at last":    {publish: now, returns: []error{errors.New("boom"), errors.New("boom"), nil}, want: "[retrying retrying succeeded]"},
		"never done":      {publish: now, returns: []error{errors.New("boom"), errors.New("boom"), errors.New("boom")}, want: "[retrying retrying failed]"},
		"cannot be done":  {publish: now, returns: []error{job.Permanent(errors.New("boom"))}, want: "[failed]"},
		"left out":        {publish: past(time.Hour, core.Message{Missed: 1}), want: "[missed]"},
		"too old":         {publish: past(horizon+time.Minute, core.Message{}), want: "[expired]"},
		"its job is gone": {publish: now, edit: func(b *bench) { delete(b.registry, "report") }, want: "[cancelled]"},
		"another is in its way": {publish: func(b *bench) job.Slot {
			b.publish("report")
			time.Sleep(time.Second)
			return b.publish("report")
		}, returns: []error{context.DeadlineExceeded}, edit: func(b *bench) {
			b.handle(job.Job{Name: "report", Retry: job.Retry{Attempts: 1}, Overlap: job.OverlapSkip}, func(context.Context, job.Run) error { time.Sleep(time.Minute); return nil })
		}, want: "[skipped succeeded]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				left := c.returns
				b.handle(job.Job{Name: "report", Retry: job.Retry{Backoff: time.Second}, Overlap: job.OverlapAllow}, func(context.Context, job.Run) error {
					err := left[0]
					left = left[1:]
					return err
				})
				if c.edit != nil {
					c.edit(b)
				}
				emit := b.cfg.Emit
				b.cfg.Emit = func(e job.Event) {
					slot, err := job.ParseSlotID(e.ID)
					if err != nil {
						t.Errorf("an event of %q: %v", e.ID, err)
					}
					if r := b.record(slot); job.EventKind(r.State) != e.Kind || e.Job != "report" || e.Node != "A" || e.V != codec.Version || e.Error != r.Error {
						t.Errorf("published %+v while the record is %s (%s)", e, r.State, r.Error)
					}
					emit(e)
				}
				stop := b.run()
				c.publish(b)
				time.Sleep(2 * time.Minute)
				_ = stop()
				if got := fmt.Sprint(b.kinds()); got != c.want {
					t.Errorf("published %s, want %s", got, c.want)
				}
			})
		})
	}
}
