package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/job"
)

// wrongClock makes the worker's estimate of the broker's clock wrong, and implausible while it is
// wrong.
func (b *bench) wrongClock(by time.Duration) (set func(time.Duration)) {
	var off atomic.Int64
	off.Store(int64(by))
	b.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
	b.cfg.Plausible = func() error {
		if off.Load() != 0 {
			return errors.New("too far apart")
		}
		return nil
	}
	return func(by time.Duration) { off.Store(int64(by)) }
}

// The broker's clock is two days ahead. The slots that wait are younger than the horizon,
// and run when the clock is right again.
func TestSlotsWaitWhileTheBrokersClockIsImplausible(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
		b.handle(job.Job{Name: "urgent", Deadline: 45 * time.Second}, func(context.Context, job.Run) error { return nil })
		set := b.wrongClock(48 * time.Hour)
		waiting := []job.Slot{b.publish("report"), b.publish("urgent")}
		stop := b.run()
		time.Sleep(40 * time.Second)
		for _, s := range waiting {
			if r, _, err := b.ledger.Read(t.Context(), s); !errors.Is(err, job.ErrNotFound) {
				t.Errorf("%s is %s by a clock that is two days ahead: %v", s, r.State, err)
			}
		}
		set(0)
		time.Sleep(time.Minute)
		if r := b.record(waiting[0]); r.State != job.Succeeded {
			t.Errorf("%s is %s when the clock is right again", r.Slot, r.State)
		}
		if r := b.record(waiting[1]); r.State != job.Expired {
			t.Errorf("%s is %s past its deadline, by the right clock", r.Slot, r.State)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A handler fails while the broker's clock is two days ahead. The age by that clock does not
// end its attempts.
func TestAttemptThatFailsWhileTheClockIsImplausibleIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		set := b.wrongClock(0)
		attempts := 0
		b.handle(job.Job{Name: "report", Retry: job.Retry{Attempts: 3, Backoff: time.Minute, MaxBackoff: time.Minute}}, func(context.Context, job.Run) error {
			if attempts++; attempts == 1 {
				set(48 * time.Hour)
				return errors.New("no")
			}
			return nil
		})
		stop := b.run()
		slot := b.publish("report")
		b.settled(1)
		set(0)
		b.settled(2)
		if r := b.record(slot); r.State != job.Succeeded || attempts != 2 {
			t.Errorf("it is %s after %d attempts: %s", r.State, attempts, r.Error)
		}
		for _, v := range b.queue.verdicts() {
			if _, delay, ok := strings.Cut(v, "later("); ok {
				if d, err := time.ParseDuration(strings.TrimSuffix(strings.Fields(delay)[0], ")")); err != nil || d > time.Minute+time.Second {
					t.Errorf("given back for %v: %q", d, v)
				}
			}
		}
		if !slices.ContainsFunc(b.queue.verdicts(), func(v string) bool { return strings.HasPrefix(v, "ack") }) {
			t.Errorf("verdicts %q", b.queue.verdicts())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
