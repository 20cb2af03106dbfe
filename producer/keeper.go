package producer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/cronce-io/cronce/job"
)

const (
	// writeEvery is the least time between two writes of the watermark.
	writeEvery = time.Second

	// standAside is how long a producer that lost the race for the watermark
	// leaves it to the one that won.
	standAside = 5 * time.Second
)

// errFatal marks what no waiting mends.
var errFatal = errors.New("cannot go on")

// errReset says that the stored watermark went back: an operator reset one that
// was wrong, or the bucket was restored. What was computed from the old one says
// nothing any more; all begins anew from the new one.
var errReset = errors.New("the stored watermark went back")

// keeper moves the stored watermark. It is the only place that writes it, and
// the only place that says when it may move (invariant 2): offer takes positions
// up to which everything is acknowledged, in growing order.
type keeper struct {
	Watermark
	node string
	log  *slog.Logger
	wake chan struct{}

	mu   sync.Mutex
	want position

	// Only the keeper's own goroutine uses these, and Run before it.
	stored   position
	revision uint64
	extra    job.Extra // members of the stored value that a newer program gave it
}

// offer makes p the position to be stored next.
func (k *keeper) offer(p position) {
	k.mu.Lock()
	k.want = p
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) wanted() position {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.want
}

// run writes what is offered, once a second at most. Of several producers one
// does it: the others notice a conflict, and look only now and then whether the
// watermark still moves without them.
func (k *keeper) run(ctx context.Context) error {
	rival := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		}
		if rival {
			before := k.stored
			if err := k.refresh(ctx); err != nil {
				return unlessEnded(ctx, err)
			}
			// One that moves on without knowing what we know of the registry
			// is not left alone: what it does not know would stay unclaimed.
			rival = k.stored.time.After(before.time) && k.wanted().revision <= k.stored.revision
		}
		if want := k.wanted(); !rival && want.ahead(k.stored) {
			var err error
			if rival, err = k.write(ctx, want); err != nil {
				return unlessEnded(ctx, err)
			}
		}
		pause := writeEvery
		if rival {
			pause = standAside
		}
		if sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// write stores p and reports whether another producer was faster. An error is
// for good.
func (k *keeper) write(ctx context.Context, p position) (rival bool, err error) {
	wm := job.Watermark{Time: p.time, Revision: p.revision, RegistryTime: p.registry, Node: k.node, Nonce: rand.Text(), Extra: k.extra}
	wait := newBackOff()
	for {
		revision, err := k.Watermark.Write(ctx, wm, k.revision)
		switch {
		case err == nil:
			k.stored, k.revision = p, revision
			return false, nil
		case errors.Is(err, job.ErrConflict):
			return true, k.refresh(ctx)
		}
		// Whatever it was, the write may have happened: only the same write at
		// the same revision settles it (invariant 8).
		if ctx.Err() == nil {
			k.log.Warn("the watermark cannot be written; trying again", "err", err)
		}
		if err := sleep(ctx, wait.NextBackOff()); err != nil {
			return false, err
		}
	}
}

// refresh reads the stored watermark, for as long as it takes.
func (k *keeper) refresh(ctx context.Context) error {
	wait := newBackOff()
	for {
		wm, revision, err := readWatermark(ctx, k.Watermark)
		p := positionOf(wm)
		if err == nil && p.behind(k.stored) {
			err = errReset
		}
		if err == nil {
			k.stored, k.revision, k.extra = p, revision, wm.Extra
			return nil
		}
		if errors.Is(err, errFatal) || errors.Is(err, errReset) {
			return err
		}
		if ctx.Err() == nil {
			k.log.Warn("the watermark cannot be read; trying again", "err", err)
		}
		if err := sleep(ctx, wait.NextBackOff()); err != nil {
			return err
		}
	}
}

// readTimeout bounds one read of the watermark.
const readTimeout = 3 * time.Second

// readWatermark makes one attempt. No watermark is the zero one: nothing has been
// published yet.
func readWatermark(ctx context.Context, w Watermark) (job.Watermark, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	wm, revision, err := w.Read(ctx)
	switch {
	case err == nil:
		return wm, revision, nil
	case errors.Is(err, job.ErrNotFound):
		return job.Watermark{}, revision, nil
	case errors.Is(err, job.ErrVersion), errors.Is(err, job.ErrInvalid):
		return job.Watermark{}, 0, fmt.Errorf("%w: read the watermark: %w", errFatal, err)
	}
	return job.Watermark{}, 0, fmt.Errorf("read the watermark: %w", err)
}

// newBackOff never gives up: what has to be published has to be published.
func newBackOff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
