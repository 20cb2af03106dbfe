package replica

import (
	"testing"
	"testing/synctest"
	"time"
)

// The library's default gives up after 15 minutes: NextBackOff is then negative, and the loop does not wait.
func TestBackoffOfAddedJobsNeverGivesUp(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		b := newAddedBackoff()
		time.Sleep(24 * time.Hour)
		for range 100 {
			if d := b.NextBackOff(); d <= 0 || d > 2*maxAddedRetry {
				t.Fatalf("after a day the pause is %v", d)
			}
		}
	})
}
