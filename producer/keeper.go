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

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

const (
	// writeEvery is the least time between two writes of the watermark.
	writeEvery = time.Second

	// rivalPause is how long a producer that met a conflict leaves the watermark to the
	// other one.
	rivalPause = 5 * time.Second
)

// errUnreadable says that this program cannot read the stored watermark.
var errUnreadable = errors.New("the stored watermark cannot be read")

// errReset says that the stored watermark went back: an operator reset it, or the bucket was
// restored. The producer discards its agenda and starts over from the stored watermark.
var errReset = errors.New("the stored watermark went back")

// keeper moves the stored watermark. Nothing else in this producer writes it. The session offers
// positions to the keeper in increasing order. All slots up to an offered position are
// acknowledged (invariant 2).
type keeper struct {
	Watermark
	node string
	log  *slog.Logger
	wake chan struct{}

	mu   sync.Mutex
	want position

	// Only the keeper's own goroutine uses the following fields. Before it starts,
	// Producer.run does.
	stored   position
	revision uint64
	extra    codec.Extra // members of the stored value that only a newer program knows

	// unreadable is true while the stored value cannot be read. newerFormat is true if a
	// newer program wrote it; it is not overwritten then.
	unreadable, newerFormat bool

	// fallback returns where to start without a readable watermark; false while the clock
	// is not plausible.
	fallback func() (position, bool)
}

// offer sets the position to store next.
func (k *keeper) offer(p position) {
	k.mu.Lock()
	k.want = p
	k.mu.Unlock()
	core.TrySend(k.wake, struct{}{})
}

// wanted returns the newest offer.
func (k *keeper) wanted() position {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.want
}

// run stores the newest offer, at most once a second. After a conflict it leaves the writing
// to the other producer, its rival, and checks every five seconds whether the rival still
// moves the watermark.
func (k *keeper) run(ctx context.Context) error {
	rival := k.newerFormat
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
			// If the rival knows only an older revision of the registry, this producer writes
			// all the same. Otherwise the watermark would never cover the newer jobs.
			rival = k.newerFormat || k.stored.time.After(before.time) && k.wanted().revision <= k.stored.revision
		}
		if want := k.wanted(); !rival && want.mayReplace(k.stored) {
			var err error
			if rival, err = k.write(ctx, want); err != nil {
				return unlessEnded(ctx, err)
			}
		}
		pause := writeEvery
		if rival {
			pause = rivalPause
		}
		if sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// write stores p, and repeats the write until it has an answer. rival reports whether another
// producer has moved the watermark. It returns an error only if ctx ends or the stored watermark
// went back.
func (k *keeper) write(ctx context.Context, p position) (rival bool, err error) {
	wm := exchange.Watermark{Time: p.time, Revision: p.revision, RegistryTime: p.registryTime, Node: k.node, Nonce: rand.Text(), Extra: k.extra}
	wait := newBackoff()
	for {
		revision, err := k.Watermark.Write(ctx, wm, k.revision)
		switch {
		case err == nil:
			k.stored, k.revision, k.unreadable = p, revision, false
			return false, nil
		case errors.Is(err, job.ErrConflict):
			err := k.refresh(ctx)
			return !k.unreadable || k.newerFormat, err
		}
		// The write may have been stored, whatever the error is. Only the answer to the same
		// write at the same revision shows whether it was (invariant 8).
		if ctx.Err() == nil {
			k.log.Warn("watermark cannot be written; trying again", "error", err)
		}
		if err := sleep(ctx, wait.NextBackOff()); err != nil {
			return false, err
		}
	}
}

// refresh reads the stored watermark, and retries until it has an answer. A value that
// cannot be read is an answer, see markUnreadable.
func (k *keeper) refresh(ctx context.Context) error {
	wait := newBackoff()
	for {
		wm, revision, err := readWatermark(ctx, k.Watermark)
		p := positionOf(wm)
		switch {
		case err == nil && p.behind(k.stored):
			return errReset
		case err == nil:
			k.stored, k.revision, k.extra, k.unreadable, k.newerFormat = p, revision, wm.Extra, false, false
			return nil
		case errors.Is(err, errUnreadable) && k.markUnreadable(revision, err):
			return nil
		}
		if ctx.Err() == nil {
			k.log.Warn("watermark cannot be read; trying again", "error", err)
		}
		if err := sleep(ctx, wait.NextBackOff()); err != nil {
			return err
		}
	}
}

// markUnreadable records that the stored watermark, at the given revision, cannot be read. A
// running producer will overwrite it with its own position. A starting producer publishes the
// slots that are younger than the horizon, and the ledger keeps those with a record from running
// again. Neither overwrites a newer format. It returns false while a starting producer has no
// plausible clock.
func (k *keeper) markUnreadable(revision uint64, cause error) bool {
	p, consequence := k.stored, "it is overwritten"
	if p == (position{}) {
		var ok bool
		if p, ok = k.fallback(); !ok {
			return false
		}
		consequence = "slots that are younger than the horizon are published again; those with a record do not run again"
	}
	newerFormat := errors.Is(cause, job.ErrVersion)
	if newerFormat {
		consequence += "; it has a newer format and is not overwritten (see: cronce doctor)"
	}
	if !k.unreadable || !k.newerFormat {
		k.log.Error("watermark cannot be read; producing without it", "error", cause, "revision", revision, "from", p.time, "consequence", consequence)
	}
	k.stored, k.revision, k.unreadable, k.newerFormat = p, revision, true, newerFormat
	return true
}

// readTimeout bounds one read of the watermark. It is longer than a slow broker takes to answer:
// otherwise every retry would time out too.
const readTimeout = 20 * time.Second

// readWatermark makes one attempt. A missing watermark is the zero value. One that cannot
// be read is errUnreadable, with its revision.
func readWatermark(ctx context.Context, w Watermark) (exchange.Watermark, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	wm, revision, err := w.Read(ctx)
	switch {
	case err == nil:
		return wm, revision, nil
	case errors.Is(err, job.ErrNotFound):
		return exchange.Watermark{}, revision, nil
	case exchange.IsUnreadable(err):
		return exchange.Watermark{}, revision, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return exchange.Watermark{}, 0, fmt.Errorf("read the watermark: %w", err)
}

// newBackoff returns a backoff that never gives up: a slot must be published however long
// that takes.
func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
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

// position is the content of a watermark. It says that every slot that fell due up to time, by
// the registry at revision, has been published. registryTime is the newest timestamp in that
// registry.
type position struct {
	time         time.Time
	revision     uint64
	registryTime time.Time
}

func positionOf(wm exchange.Watermark) position {
	return position{wm.Time, wm.Revision, wm.RegistryTime}
}

// knows reports whether the registry of this position already had a plan. from is when the plan
// came into force, and revision is that of the entry with the plan. The revision alone would not
// do: an edit of the payload raises the entry's revision, and does not change the plan.
func (p position) knows(revision uint64, from time.Time) bool {
	return revision <= p.revision || !from.After(p.registryTime)
}

// mayReplace reports whether q may replace p as the stored watermark: neither its time nor its
// revision is lower than that of p, and one of them is higher.
func (q position) mayReplace(p position) bool {
	if q.time.Before(p.time) || q.revision < p.revision {
		return false
	}
	return q.time.After(p.time) || q.revision > p.revision
}

// behind reports whether the time or the revision of the stored watermark q is lower than that
// of p. Only an operator or a restored bucket causes that. A deleted watermark did not go back:
// a running producer knows what was published, and must not publish a job's whole past again.
func (q position) behind(p position) bool {
	return !q.time.IsZero() && (q.time.Before(p.time) || q.revision < p.revision)
}
