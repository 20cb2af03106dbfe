//go:build long

package producer

import (
	"testing"
	"testing/synctest"
	"time"
)

// goleak checks after all tests that no goroutine is left, synctest after each.
func TestCancelAtAnyMomentLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.setAnswer(faulty(3))
		b.applyEach(50, "")
		for i := range 100 {
			p := b.start()
			advance(time.Duration(i*i) * time.Millisecond)
			b.setAway(i%7 == 0)
			p.stop()
		}
	})
}
