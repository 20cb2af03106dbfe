package board

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackgroundComputesOneAtATimeAndKeepsTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		l := Background[string, int]{Context: ctx, Every: time.Minute, Max: 2}
		var running, most, calls atomic.Int32
		var fail error
		compute := func(context.Context) (int, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			return int(calls.Add(1)), fail
		}
		if r := l.Get(ctx, "a", time.Time{}, 0, compute); r.Ready || !r.Running {
			t.Errorf("at once: %+v", r)
		}
		l.Get(ctx, "b", time.Time{}, 0, compute)
		a := l.Get(ctx, "a", time.Time{}, time.Hour, compute)
		b := l.Get(ctx, "b", time.Time{}, time.Hour, compute)
		if !a.Ready || !b.Ready || a.Value+b.Value != 3 || most.Load() != 1 {
			t.Errorf("after a wait: %+v, %+v, and %d were computed at once", a, b, most.Load())
		}
		fail = errors.New("broken")
		time.Sleep(2 * time.Minute)
		if r := l.Get(ctx, "a", time.Time{}, 0, compute); r.Value != a.Value || !r.Running {
			t.Errorf("an old value is not shown while a new one is computed: %+v", r)
		}
		time.Sleep(2 * time.Second)
		if r := l.Get(ctx, "a", time.Time{}, 0, compute); r.Value != a.Value || r.Err == nil || r.Running {
			t.Errorf("a failure takes the value: %+v", r)
		}
		l.Get(ctx, "c", time.Time{}, time.Hour, compute)
		if len(l.values) > 2 {
			t.Errorf("%d values are kept", len(l.values))
		}
		stop()
		l.Wait()
	})
}

// A check that failed after two minutes would otherwise be shown as failed for forty.
func TestBackgroundRepeatsAFailureSoonerThanASuccess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		again time.Duration
	}{{nil, 20 * time.Minute}, {errors.New("broken"), 4 * time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			l := Background[string, int]{Context: ctx, Every: time.Second, Max: 1}
			compute := func(context.Context) (int, error) {
				time.Sleep(time.Minute)
				return 1, c.err
			}
			began := time.Now()
			l.Get(ctx, "a", time.Time{}, time.Hour, compute)
			for !l.Get(ctx, "a", time.Time{}, 0, compute).Running {
				time.Sleep(time.Second)
			}
			if d := time.Since(began); d < c.again || d > c.again+2*time.Second {
				t.Errorf("with the error %v it was computed again after %v, want %v", c.err, d, c.again)
			}
			stop()
			l.Wait()
		})
	}
}

// A computation that began before the news does not have them.
func TestBackgroundComputesAgainWhatBeganBeforeTheNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		l := Background[string, time.Time]{Context: ctx, Every: time.Minute, Max: 1}
		read := func(context.Context) (time.Time, error) {
			began := time.Now()
			time.Sleep(time.Second)
			return began, nil
		}
		l.Get(ctx, "a", time.Time{}, 0, read)
		time.Sleep(time.Second / 2)
		news := time.Now()
		if r := l.Get(ctx, "a", news, time.Hour, read); !r.Ready || r.Value.Before(news) {
			t.Errorf("it was read at %v, before the news of %v", r.Value, news)
		}
		stop()
		l.Wait()
	})
}

func TestBackgroundBoundsTheComputationsThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		l := Background[int, int]{Context: ctx, Every: time.Minute, Max: 2}
		compute := func(context.Context) (int, error) {
			time.Sleep(time.Second)
			return 1, nil
		}
		for key := range 10 {
			if r := l.Get(ctx, key, time.Time{}, 0, compute); r.Ready || !r.Running || r.Began.IsZero() {
				t.Errorf("number %d: %+v", key, r)
			}
		}
		if n := len(l.values); n != 2 {
			t.Errorf("%d values are computed or wait, want 2", n)
		}
		time.Sleep(time.Minute)
		if r := l.Get(ctx, 9, time.Time{}, time.Hour, compute); !r.Ready {
			t.Errorf("asked again: %+v", r)
		}
		stop()
		l.Wait()
	})
}
