package node_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/node"
)

// stalled is a watch that delivers nothing.
type stalled struct{}

func (stalled) Watch(ctx context.Context, _ func(exchange.NodeEvent)) error {
	<-ctx.Done()
	return nil
}

// Processes that watch fence a node that falls silent. The others find it fenced within a
// second, and fence it themselves if no process watches.
func TestASilentNodeIsFencedByAProcessThatWatches(t *testing.T) {
	t.Parallel()
	for _, guarded := range []bool{true, false} {
		t.Run(fmt.Sprint("watched: ", guarded), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBucket()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if guarded {
					guard := peers(b, bootClock())
					go func() { _ = guard.Watch(ctx, b, nil) }()
					go guard.Guard(ctx, "G")
				}
				idle := peers(b, bootClock()) // has no watch, and fences only when asked
				go idle.Guard(ctx, "I")
				b.store(t, exchange.Node{Name: "X", State: exchange.NodeAlive, Lease: lease}, 0)
				alive := b.store(t, exchange.Node{Name: "Z", State: exchange.NodeAlive, Lease: lease}, 0)
				time.Sleep(lease / 2)
				alive = b.store(t, exchange.Node{Name: "Z", State: exchange.NodeAlive, Lease: lease}, alive)
				p := peers(b, bootClock())
				began := time.Now()
				var dead bool
				for !dead {
					var wait time.Duration
					var err error
					if dead, wait, err = p.Dead(ctx, "X", "Y"); err != nil {
						t.Fatal(err)
					}
					if wait > time.Second {
						t.Fatalf("Dead asks to wait %v without a watch, want a second at most", wait)
					}
					time.Sleep(wait)
				}
				rec, _ := b.recordOf(t, "X")
				by, most := "Y", lease
				if guarded {
					by, most = "G", lease/2+lease/20+time.Second
				}
				if took := time.Since(began); rec.FencedBy != by || took > most {
					t.Errorf("fenced by %s, found dead after %v; want by %s within %v", rec.FencedBy, took, by, most)
				}
				if rec, revision := b.recordOf(t, "Z"); revision != alive && time.Since(began) < lease {
					t.Errorf("Z is %s, although it was not silent for a lease", rec.State)
				}
			})
		})
	}
}

// A new watch does not know since when a key has not changed.
func TestANewWatchMeasuresSilenceAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.store(t, exchange.Node{Name: "X", State: exchange.NodeAlive, Lease: lease}, 0)
		p := peers(b, bootClock())
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = p.Watch(ctx, b, nil) }()
			synctest.Wait()
			if dead, wait, err := p.Dead(ctx, "X", "Y"); dead || wait != lease || err != nil {
				t.Errorf("dead=%v wait=%v err=%v, want a whole lease", dead, wait, err)
			}
			cancel()
			synctest.Wait()
			time.Sleep(2 * lease)
		}
	})
}

// If the watch stalls, a challenger believes that a key has not changed. Its write at the old
// revision is refused, and it waits another lease.
func TestAStalledWatchFencesNoLivingNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		revision := b.store(t, exchange.Node{Name: "X", State: exchange.NodeAlive, Lease: lease}, 0)
		p := peers(b, bootClock())
		go func() { _ = p.Watch(t.Context(), stalled{}, nil) }()
		synctest.Wait()
		_, _, _ = p.Dead(t.Context(), "X", "Y")
		time.Sleep(lease)
		b.store(t, exchange.Node{Name: "X", State: exchange.NodeAlive, Lease: lease}, revision)
		dead, wait, err := p.Dead(t.Context(), "X", "Y")
		if dead || wait != lease || err != nil {
			t.Errorf("dead=%v wait=%v err=%v, want a whole lease more", dead, wait, err)
		}
		if rec, _ := b.recordOf(t, "X"); rec.State != exchange.NodeAlive {
			t.Errorf("a living node is %s", rec.State)
		}
	})
}

func TestAProcessWithoutAWatchForgetsNodesThatItNoLongerAsksAbout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		p := peers(b, bootClock())
		ask := func(name string, want bool) {
			t.Helper()
			if dead, _, err := p.Dead(t.Context(), name, "by"); err != nil || dead != want {
				t.Fatalf("node %s is dead: %v, %v; want %v", name, dead, err, want)
			}
		}
		b.store(t, exchange.Node{Name: "silent", State: exchange.NodeAlive, Lease: lease}, 0)
		for n := range 3 * node.MaxUnwatched {
			if n%node.MaxUnwatched == node.MaxUnwatched/2 {
				time.Sleep(lease / 4) // bubble time
			}
			name := fmt.Sprint("stopped", n)
			b.store(t, exchange.Node{Name: name, State: exchange.NodeStopped}, 0)
			ask(name, true)
			if n%100 == 0 {
				ask("silent", false) // the others do not change since when it is silent
			}
		}
		ask("stopped0", true)
		time.Sleep(lease / 4)
		ask("silent", true)
		if n := p.Seen(); n > node.MaxUnwatched {
			t.Errorf("the records of %d nodes are kept, want at most %d", n, node.MaxUnwatched)
		}
		for n := range node.MaxUnwatched {
			name := fmt.Sprint("alive", n)
			b.store(t, exchange.Node{Name: name, State: exchange.NodeAlive, Lease: lease}, 0)
			ask(name, false)
		}
		time.Sleep(lease + time.Second)
		ask("another", false)
		if n := p.Seen(); n != 1 {
			t.Errorf("the records of %d nodes are kept, want only that of the last", n)
		}
	})
}

// An operator may have deleted the key of a living node, so the key must be missing for a lease.
func TestAMissingKeyIsFencedByCreatingItAfterALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		p := peers(b, bootClock())
		if dead, wait, _ := p.Dead(t.Context(), "X", "Y"); dead || wait != time.Second {
			t.Errorf("dead=%v wait=%v at the first read, want another read in a second", dead, wait)
		}
		time.Sleep(lease)
		if dead, _, err := p.Dead(t.Context(), "X", "Y"); !dead {
			t.Errorf("not dead: %v", err)
		}
		if rec, _ := b.recordOf(t, "X"); rec.State != exchange.NodeFenced {
			t.Errorf("record %+v, want it fenced", rec)
		}
	})
}
