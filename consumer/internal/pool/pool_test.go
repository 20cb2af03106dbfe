package pool

import (
	"sync"
	"testing"
	"testing/synctest"
)

// However many functions block, the next one begins at once. No goroutine is left when the
// pool is closed.
func TestThePoolBeginsEveryFunctionAtOnceAndEndsItsGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(2)
		for range 3 { // idle goroutines are used again
			var began, done sync.WaitGroup
			over := make(chan struct{})
			for range 50 {
				began.Add(1)
				done.Add(1)
				p.Do(func() { began.Done(); <-over; done.Done() })
			}
			began.Wait() // or all are blocked, and the test ends with that
			close(over)
			done.Wait()
			synctest.Wait()
			if n := len(p.idle); n != 2 {
				t.Errorf("%d goroutines are idle, want 2", n)
			}
		}
		p.Close()
		late := make(chan struct{})
		p.Do(func() { close(late) })
		<-late
	})
}
