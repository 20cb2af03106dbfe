package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/job"
)

func TestDelayDoublesWithEachAttemptUpToMaxBackoff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		backoff, most time.Duration
		attempt       int
		want          time.Duration
	}{
		{time.Second, time.Minute, 1, time.Second},
		{time.Second, time.Minute, 4, 8 * time.Second},
		{time.Second, time.Minute, 100, time.Minute},
		{time.Microsecond, time.Hour, 100, time.Hour},
		{1, time.Hour, 34, 1 << 33},
		{time.Second, 1<<63 - 1, 1000, 1 << 62},
	} {
		got := delay(job.Retry{Backoff: c.backoff, MaxBackoff: c.most}, c.attempt)
		if low := c.want / 4 * 3; got < low || got-c.want > c.want/4 {
			t.Errorf("%v after attempt %d with a backoff of %v up to %v, want about %v", got, c.attempt, c.backoff, c.most, c.want)
		}
	}
}

// The library's default gives up after 15 minutes: NextBackOff is then negative, and the loop does not wait.
func TestBackoffNeverGivesUp(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		b := newBackoff()
		time.Sleep(24 * time.Hour)
		for range 100 {
			if d := b.NextBackOff(); d <= 0 || d > 2*time.Second {
				t.Fatalf("after a day the pause is %v", d)
			}
		}
	})
}
