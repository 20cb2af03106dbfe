//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import (
	"testing"
	"testing/synctest"
)

// The keeper must not wait for a worker that reads nothing. If put waits in this bubble, that is a
// deadlock, which synctest reports at once.
func TestQueueTakesAnyNumberOfValuesBeforeOneIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[int]()
		const n = 100_000
		for i := range n {
			q.put(i)
		}
		for i := range n {
			if v := q.take(); v != i {
				t.Fatalf("took %d, want %d", v, i)
			}
		}
	})
}
