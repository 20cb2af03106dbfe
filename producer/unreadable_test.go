package producer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

var (
	errGarbled = fmt.Errorf("%w watermark: not JSON", job.ErrInvalid)
	errNewer   = fmt.Errorf("%w watermark: v 99", job.ErrVersion)
)

// spoil replaces the watermark by a value that cannot be read.
func (b *broker) spoil(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.markErr, b.markRev = err, b.markRev+1
}

// standing returns the stored watermark's revision, and why it cannot be read.
func (b *broker) standing() (revision uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.markRev, b.markErr
}

func TestRunningProducerWritesAnUnreadableWatermarkAnew(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(t)
			start := time.Now()
			all := crowd(b, n, 3)
			for range 3 {
				b.spoil(errGarbled)
				advance(10 * time.Second)
				if _, err := b.standing(); err != nil || time.Since(b.watermark().Time) > 3*time.Second {
					t.Errorf("%d producers: ten seconds later it is %v, %v", n, b.watermark(), err)
				}
			}
			b.complete(3, start, 50*time.Millisecond)
			stopAll(all)
		})
	}
}

// A watermark of a newer program is not overwritten, and production goes on.
func TestRunningProducerLeavesAWatermarkOfANewerFormatAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		all := crowd(b, 2, 3)
		b.spoil(errNewer)
		revision, _ := b.standing()
		advance(time.Minute)
		b.complete(3, start, 50*time.Millisecond)
		if now, err := b.standing(); err == nil || now != revision {
			t.Errorf("it was written over: revision %d, before %d", now, revision)
		}
		all[0].stop()
		b.resetTo(exchange.Watermark{Time: time.Now().Add(-time.Hour).UTC(), Node: "operator"}) // as by "cronce doctor --reset-watermark --force"
		advance(20 * time.Second)
		if wm := b.watermark(); time.Since(wm.Time) > 3*time.Second {
			t.Errorf("the watermark is at %v after it was reset", wm.Time)
		}
		stopAll(all[1:])
	})
}

// A starting producer goes on from the horizon, whatever is stored.
func TestStartingProducerGoesOnWithoutAnUnreadableWatermark(t *testing.T) {
	t.Parallel()
	for _, unreadable := range []error{errGarbled, errNewer} {
		t.Run(unreadable.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				start := time.Now()
				def := every("a", "0 * * * *", job.CatchUpAll)
				b.apply(def)
				p := b.start()
				advance(30 * time.Hour)
				p.stop()
				b.spoil(unreadable)
				gone := time.Now()
				advance(3 * time.Hour)
				b.take()
				p = b.start()
				advance(10 * time.Second)
				for _, m := range b.take() {
					if gone.Sub(m.Due) > job.DefaultHorizon {
						t.Errorf("%s was published again, from beyond the horizon", m.Slot)
					}
				}
				if n, want := len(b.has("a")), len(slots(t, def, start, time.Now())); n != want {
					t.Errorf("%d slots are stored, want %d", n, want)
				}
				_, err := b.standing()
				if rewritten := err == nil; rewritten != (unreadable == errGarbled) {
					t.Errorf("the watermark reads %v after ten seconds", err)
				}
				p.stop()
			})
		})
	}
}

// With an implausible clock there is no horizon: the producer waits, and does not end.
func TestStartingProducerWaitsForItsClockWithoutAWatermark(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.apply(every("a", "* * * * * *", job.CatchUpAll))
		p := b.start()
		advance(10 * time.Second)
		p.stop()
		b.spoil(errGarbled)
		p = b.start(func(_ *Config, v *view) { v.offset = 48 * time.Hour })
		advance(10 * time.Second)
		p.step(-48 * time.Hour)
		advance(20 * time.Second)
		if wm := b.watermark(); time.Since(wm.Time) > 3*time.Second || wm.Time.After(time.Now()) {
			t.Errorf("the watermark is at %v, the time is %v", wm.Time, time.Now())
		}
		p.stop()
	})
}
