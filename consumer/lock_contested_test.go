package consumer_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// contested refuses the first writes of locks, as many as lose says, as if another worker had
// written first.
type contested struct {
	consumer.Locks
	lose atomic.Int64
}

func (c *contested) Write(ctx context.Context, l core.Lock, revision uint64) (uint64, error) {
	if c.lose.Add(-1) >= 0 {
		return 0, fmt.Errorf("%w", job.ErrConflict)
	}
	return c.Locks.Write(ctx, l, revision)
}

func (l *contested) Send(ctx context.Context, lock core.Lock, revision uint64, answered func(uint64, error)) {
	go func() { answered(l.Write(ctx, lock, revision)) }()
}

func TestASlotThatIsRefusedItsLockManyTimesEntersSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapQueue}, time.Second)
		b := f.benches[0]
		locks := &contested{Locks: b.cfg.Locks}
		b.cfg.Locks = locks
		locks.lose.Store(12)
		stop := b.run()
		began := time.Now()
		s := f.publish()
		b.settled(1)
		took := time.Since(began)
		_ = stop()
		f.want(s, job.Succeeded, "")
		if took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestALockThatOthersChangeIsLeftAllTheSame(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose  int64
		freed bool
	}{"for a while": {30, true}, "for ever": {1 << 40, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapQueue}, time.Second)
				b := f.benches[0]
				locks := &contested{Locks: b.cfg.Locks}
				var logged bytes.Buffer
				b.cfg.Locks, b.cfg.Logger = locks, slog.New(slog.NewTextHandler(&logged, nil))
				stop := b.run()
				s := f.publish()
				for len(f.runs.said()) == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				locks.lose.Store(c.lose)
				b.settled(1)
				time.Sleep(lease)
				_ = stop()
				f.want(s, job.Succeeded, "")
				l, _, err := locks.Read(t.Context(), "report")
				if err != nil || (len(l.Holders) == 0) != c.freed {
					t.Errorf("the lock is %+v, %v", l, err)
				}
				if warned := strings.Contains(logged.String(), "slot not removed from its job's lock"); warned == c.freed {
					t.Errorf("logged %q", logged.String())
				}
			})
		})
	}
}
