package alert

import (
	"testing"
	"testing/synctest"
	"time"
)

// The library's default gives up after 15 minutes: NextBackOff is then negative, and the loop does not wait.
func TestBackoffNeverGivesUp(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		b := newBackoff(maxBackoff)
		time.Sleep(24 * time.Hour)
		for range 100 {
			if d := b.NextBackOff(); d <= 0 || d > maxBackoff {
				t.Fatalf("after a day the pause is %v", d)
			}
		}
	})
}
