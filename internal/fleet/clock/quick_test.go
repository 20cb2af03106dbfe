package clock

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/fleet/boot"
	"pgregory.net/rapid"
)

func TestAQuickReadingIsThatOfTheBootClock(t *testing.T) {
	t.Parallel()
	q := newQuick(boot.Now)
	for range 10_000 {
		before := boot.Now()
		at := q.now()
		after := boot.Now()
		if at > after || at < before-50*time.Millisecond { // the anchor may have been read slowly
			t.Fatalf("%v was read between %v and %v", at, before, after)
		}
	}
}

// The machine runs and sleeps, and the wall clock is set. The reading is never ahead of the boot
// clock. It is behind by at most the suspends that are too short to be noticed.
func TestAQuickReadingNoticesASuspend(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var boot, mono, wall time.Duration
		q := &quick{boot: func() time.Duration { return boot }, read: func() (time.Duration, time.Duration) { return mono, wall }}
		q.now()
		hidden := time.Duration(0) // suspends that were too short to be noticed
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			by := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "by"))
			switch rapid.SampledFrom([]string{"run", "sleep", "nap", "set"}).Draw(t, "event") {
			case "run":
				boot, mono, wall = boot+by, mono+by, wall+by
			case "sleep":
				by += 2 * moved
				boot, wall = boot+by, wall+by
			case "nap":
				by = by % moved
				boot, wall, hidden = boot+by, wall+by, hidden+by
			case "set":
				wall += by - 30*time.Minute
			}
			at := q.now()
			if at > boot || at < boot-hidden {
				t.Fatalf("read %v at %v", at, boot)
			}
		}
	})
}
