package consumer

import (
	"sync"
	"testing"
	"testing/synctest"
)

// However many wait for something, what comes next is begun at once; and nobody is
// left when it is over.
func TestTheCrewBeginsEverythingAtOnceAndGoesWhenItIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(2)
		for range 3 { // those who wait for more are used again
			var begun, done sync.WaitGroup
			over := make(chan struct{})
			for range 50 {
				begun.Add(1)
				done.Add(1)
				c.do(func() { begun.Done(); <-over; done.Done() })
			}
			begun.Wait() // or all are blocked, and the test ends with that
			close(over)
			done.Wait()
			synctest.Wait()
			if n := len(c.idle); n != 2 {
				t.Errorf("%d wait for more work, want 2", n)
			}
		}
		c.dismiss()
		late := make(chan struct{})
		c.do(func() { close(late) })
		<-late
	})
}
