package wire_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/broker/wire"
)

// The library's default gives up after 15 minutes: NextBackOff is then negative, and the loop does not wait.
func TestBackoffNeverGivesUp(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		b := wire.NewBackoff()
		time.Sleep(24 * time.Hour)
		for range 100 {
			if d := b.NextBackOff(); d <= 0 || d > time.Second {
				t.Fatalf("after a day the pause is %v", d)
			}
		}
	})
}
