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

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

const (
	// writeEvery is the least time between two writes of the watermark.
	writeEvery = time.Second

	// standAside is how long a producer that lost the race for the watermark
	// leaves it to the one that won.
	standAside = 5 * time.Second
)

// errUnreadable marks a stored watermark that this program cannot read.
var errUnreadable = errors.New("the stored watermark cannot be read")

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

	// spoilt says that what is stored cannot be read, foreign that it is of a newer
	// format, and left to the programs that know it.
	spoilt, foreign bool

	// start is where to begin without a watermark that can be read; false while that
	// is not known.
	start func() (position, bool)
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
	rival := k.foreign
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
			rival = k.foreign || k.stored.time.After(before.time) && k.wanted().revision <= k.stored.revision
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
	wm := core.Watermark{Time: p.time, Revision: p.revision, RegistryTime: p.registry, Node: k.node, Nonce: rand.Text(), Extra: k.extra}
	wait := newBackOff()
	for {
		revision, err := k.Watermark.Write(ctx, wm, k.revision)
		switch {
		case err == nil:
			k.stored, k.revision, k.spoilt = p, revision, false
			return false, nil
		case errors.Is(err, job.ErrConflict):
			err := k.refresh(ctx)
			return !k.spoilt || k.foreign, err
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

// refresh reads the stored watermark, for as long as it takes. One that cannot be read
// keeps no producer from its work: see spoil.
func (k *keeper) refresh(ctx context.Context) error {
	wait := newBackOff()
	for {
		wm, revision, err := readWatermark(ctx, k.Watermark)
		p := positionOf(wm)
		if err == nil && p.behind(k.stored) {
			err = errReset
		}
		if err == nil {
			k.stored, k.revision, k.extra, k.spoilt, k.foreign = p, revision, wm.Extra, false, false
			return nil
		}
		if errors.Is(err, errReset) {
			return err
		}
		if errors.Is(err, errUnreadable) && k.spoil(revision, err) {
			return nil
		}
		if ctx.Err() == nil {
			k.log.Warn("the watermark cannot be read; trying again", "err", err)
		}
		if err := sleep(ctx, wait.NextBackOff()); err != nil {
			return err
		}
	}
}

// spoil takes note of a stored watermark at that revision which cannot be read. A
// producer that runs knows what was published, and writes it anew; one that starts goes
// on from the horizon, and the ledger settles what has run. A newer format is left alone.
// It is false while that cannot be done.
func (k *keeper) spoil(revision uint64, why error) bool {
	p, does := k.stored, "it is written anew"
	if p == (position{}) {
		var ok bool
		if p, ok = k.start(); !ok {
			return false
		}
		does = "slots since the horizon are offered again; those that have a record do not run again"
	}
	foreign := errors.Is(why, job.ErrVersion)
	if foreign {
		does += "; it is of a newer format, and not written over (see: cronce doctor)"
	}
	if !k.spoilt || !k.foreign {
		k.log.Error("the watermark cannot be read; this producer goes on without it", "error", why, "revision", revision, "from", p.time, "consequence", does)
	}
	k.stored, k.revision, k.spoilt, k.foreign = p, revision, true, foreign
	return true
}

// readTimeout bounds one read of the watermark.
const readTimeout = 3 * time.Second

// readWatermark makes one attempt. No watermark is the zero one: nothing has been
// published yet. One that cannot be read is errUnreadable, with its revision.
func readWatermark(ctx context.Context, w Watermark) (core.Watermark, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	wm, revision, err := w.Read(ctx)
	switch {
	case err == nil:
		return wm, revision, nil
	case errors.Is(err, job.ErrNotFound):
		return core.Watermark{}, revision, nil
	case errors.Is(err, job.ErrVersion), errors.Is(err, job.ErrInvalid):
		return core.Watermark{}, revision, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return core.Watermark{}, 0, fmt.Errorf("read the watermark: %w", err)
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
