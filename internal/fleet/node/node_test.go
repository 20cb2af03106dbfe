package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	lease  = 20 * time.Second
	trust  = lease - lease/4
	beatin = lease / 10
)

// bucket is the nodes bucket in memory, which conforms to the one on the broker.
// A test may make its writes slow, or lose their answers.
type bucket struct {
	*memstore.Nodes

	// delay is how long a write takes to land and its answer to come back; lost
	// says that it is never answered.
	delay func() (there, back time.Duration, lost bool)
}

func newBucket() *bucket { return &bucket{Nodes: memstore.New().Nodes()} }

func (b *bucket) Write(ctx context.Context, n exchange.Node, revision uint64) (uint64, error) {
	if b.delay == nil {
		return b.Nodes.Write(ctx, n, revision)
	}
	there, back, lost := b.delay()
	type answer struct {
		revision uint64
		err      error
	}
	answered := make(chan answer, 1)
	time.AfterFunc(there, func() {
		r, err := b.Nodes.Write(context.WithoutCancel(ctx), n, revision)
		time.AfterFunc(back, func() {
			if !lost {
				answered <- answer{r, err}
			}
		})
	})
	select {
	case a := <-answered:
		return a.revision, a.err
	case <-ctx.Done():
		return 0, job.ErrUnknown
	}
}

// store writes a record that is not a node's own.
func (b *bucket) store(t *testing.T, n exchange.Node, revision uint64) uint64 {
	t.Helper()
	n.Nonce = fmt.Sprint("test ", revision)
	stored, err := b.Nodes.Write(t.Context(), n, revision)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// bootClock is a clock that follows the bubble's, unless it sleeps.
func bootClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Hour + time.Since(start) }
}

func start(t *testing.T, b *bucket, name string, boot func() time.Duration) (n *node.Node, ended <-chan error) {
	t.Helper()
	n = node.New(node.Config{Store: b, Record: func() exchange.Node { return exchange.Node{} }, Name: name, Started: time.Now(), Lease: lease, Boot: boot})
	done := make(chan error, 1)
	go func() { done <- n.Run(t.Context()) }()
	t.Cleanup(func() { n.Lose(errors.New("the test is over")) })
	return n, done
}

func peers(b *bucket, boot func() time.Duration) *node.Peers {
	return node.NewPeers(node.PeersConfig{Store: b, Lease: lease, Now: time.Now, Boot: boot})
}

func TestNothingIsTrustedBeforeTheFirstHeartbeatIsAcknowledged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.delay = func() (time.Duration, time.Duration, bool) { return time.Second, time.Second, false }
		n, _ := start(t, b, "A", bootClock())
		time.Sleep(1900 * time.Millisecond)
		if n.Trusted() {
			t.Error("trusted while the first heartbeat is on its way")
		}
		<-n.Ready()
		if !n.Trusted() {
			t.Error("not trusted after the first heartbeat")
		}
	})
}

func TestTrustIsCountedFromBeforeTheHeartbeatWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		slow := 9 * time.Second
		beats := 0
		b.delay = func() (time.Duration, time.Duration, bool) {
			beats++
			return 0, slow, beats > 1
		}
		sent := time.Now()
		n, _ := start(t, b, "A", bootClock())
		<-n.Ready()
		<-n.Context().Done()
		if got := time.Since(sent); got < trust || got > trust+time.Second {
			t.Errorf("trusted itself until %v after it sent its last acknowledged heartbeat, want %v", got, trust)
		}
		if !errors.Is(context.Cause(n.Context()), job.ErrLeaseLost) {
			t.Errorf("cause %v", context.Cause(n.Context()))
		}
	})
}

func TestAFencedNodeLosesItsLeaseAtItsNextHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		n, ended := start(t, b, "A", bootClock())
		<-n.Ready()
		_, revision, _ := b.Read(t.Context(), "A")
		b.store(t, exchange.Node{Name: "A", State: exchange.NodeFenced, FencedBy: "B"}, revision)
		select {
		case err := <-ended:
			if !errors.Is(err, job.ErrLeaseLost) {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(beatin + time.Second):
			t.Error("goes on after the heartbeat that had to find the fence")
		}
		if rec, _, _ := b.Read(t.Context(), "A"); rec.State != exchange.NodeFenced {
			t.Errorf("a heartbeat was written over the fence: %s", rec.State)
		}
	})
}

// A node that was suspended past its lease goes on as a new incarnation, even
// when its heartbeat would still be accepted.
func TestALapsedLeaseIsNeverTakenUpAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		var mu sync.Mutex
		asleep := time.Duration(0)
		real := bootClock()
		boot := func() time.Duration { mu.Lock(); defer mu.Unlock(); return real() + asleep }
		n, ended := start(t, b, "A", boot)
		<-n.Ready()
		mu.Lock()
		asleep = trust // the machine slept: timers stood still, this clock did not
		mu.Unlock()
		if n.Trusted() {
			t.Error("trusted at once after a sleep as long as its trust")
		}
		if n.Context().Err() == nil {
			t.Error("the node said that it is not trusted, and its context goes on: what is written in it would still be sent")
		}
		if err := <-ended; !errors.Is(err, job.ErrLeaseLost) {
			t.Errorf("Run returned %v", err)
		}
		if rec, _, _ := b.Read(t.Context(), "A"); rec.State != exchange.NodeAlive {
			t.Errorf("another writer wrote %s", rec.State)
		}
	})
}

func TestALivingNodeKeepsItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		n, ended := start(t, b, "A", bootClock())
		<-n.Ready()
		time.Sleep(10 * lease)
		select {
		case err := <-ended:
			t.Fatalf("lost its lease: %v", err)
		default:
		}
		if !n.Trusted() {
			t.Error("not trusted")
		}
	})
}

// Invariant 9: slowness is not death. A broker that takes up to a third of the lease to
// answer, however that is divided, loses no lease, and is not sent more for it.
func TestSlownessIsNotDeath(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{1200 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second, lease / 3} {
		for part, there := range map[string]time.Duration{"there": late, "back": 0, "both": late / 2} {
			t.Run(fmt.Sprint(late, " ", part), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newBucket()
					var beats atomic.Int64
					b.delay = func() (time.Duration, time.Duration, bool) { beats.Add(1); return there, late - there, false }
					n, ended := start(t, b, "A", bootClock())
					p := peers(b, bootClock())
					go func() { _ = p.Watch(t.Context(), b, nil) }()
					<-n.Ready()
					for range 200 {
						time.Sleep(lease / 20)
						if dead, _, _ := p.Dead(t.Context(), "A", "Y"); dead {
							t.Fatal("proved dead")
						}
					}
					select {
					case err := <-ended:
						t.Fatalf("lost its lease: %v", err)
					default:
					}
					if most := 1 + int(time.Since(startOfBubble)/beatin); !n.Trusted() || int(beats.Load()) > most {
						t.Errorf("trusted: %v; %d heartbeats, want at most %d", n.Trusted(), beats.Load(), most)
					}
				})
			})
		}
	}
}

func TestOnlyAWholeLeaseOfSilenceIsDeath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, boot := newBucket(), bootClock()
		revision := b.store(t, exchange.Node{Name: "X", State: exchange.NodeAlive, Lease: lease}, 0)
		p := peers(b, boot)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = p.Watch(ctx, b, nil) }()
		synctest.Wait()
		time.Sleep(lease - time.Second)
		dead, wait, err := p.Dead(ctx, "X", "Y")
		if dead || wait != time.Second || err != nil {
			t.Errorf("dead=%v wait=%v err=%v, want to wait another second", dead, wait, err)
		}
		// It beats: the stopwatch starts anew.
		b.store(t, exchange.Node{Name: "X", State: exchange.NodeAlive, Lease: lease}, revision)
		time.Sleep(2 * time.Second)
		if dead, _, _ := p.Dead(ctx, "X", "Y"); dead {
			t.Error("dead two seconds after a heartbeat")
		}
		time.Sleep(lease)
		if dead, _, err := p.Dead(ctx, "X", "Y"); !dead {
			t.Errorf("not dead after a lease of silence: %v", err)
		}
		rec, _, _ := b.Read(ctx, "X")
		if rec.State != exchange.NodeFenced || rec.FencedBy != "Y" || !rec.FencedAt.Equal(time.Now()) {
			t.Errorf("record %+v, want fenced by Y now", rec)
		}
	})
}

// The lease of a node that holds a longer one than the challenger's counts.
func TestTheLongerLeaseCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.store(t, exchange.Node{Name: "X", State: exchange.NodeAlive, Lease: 3 * lease}, 0)
		p := peers(b, bootClock())
		_, _, _ = p.Dead(t.Context(), "X", "Y")
		time.Sleep(3*lease - time.Second)
		if dead, wait, _ := p.Dead(t.Context(), "X", "Y"); dead || wait != time.Second {
			t.Errorf("dead=%v wait=%v, want another second", dead, wait)
		}
	})
}

// stalled is a watch that tells nothing.
type stalled struct{}

func (stalled) Watch(ctx context.Context, _ func(exchange.NodeEvent)) error {
	<-ctx.Done()
	return nil
}

// Processes that watch fence a node that falls silent. The others find it fenced within a
// second, and fence it themselves if no process watches.
func TestASilentNodeIsFencedByThoseWhoWatch(t *testing.T) {
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
				looked := time.Now()
				var dead bool
				for !dead {
					var wait time.Duration
					var err error
					if dead, wait, err = p.Dead(ctx, "X", "Y"); err != nil {
						t.Fatal(err)
					}
					if wait > time.Second {
						t.Fatalf("told to wait %v without a watch", wait)
					}
					time.Sleep(wait)
				}
				rec, _, _ := b.Read(ctx, "X")
				by, most := "Y", lease
				if guarded {
					by, most = "G", lease/2+lease/20+time.Second
				}
				if took := time.Since(looked); rec.FencedBy != by || took > most {
					t.Errorf("fenced by %s, known after %v; want by %s within %v", rec.FencedBy, took, by, most)
				}
				if rec, revision, _ := b.Read(ctx, "Z"); revision != alive && time.Since(looked) < lease/2 {
					t.Errorf("Z is %s, which was not silent for a lease", rec.State)
				}
			})
		})
	}
}

// A watch that begins knows nothing of before: keys that stood still while no process
// looked are seen anew.
func TestAWatchThatBeginsAgainStartsTheStopwatchesAnew(t *testing.T) {
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

// A stalled watch makes a challenger believe that a key stands still: the write
// at the stale revision is refused, and the stopwatch starts anew.
func TestAStalledWatchFencesNobody(t *testing.T) {
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
		if rec, _, _ := b.Read(t.Context(), "X"); rec.State != exchange.NodeAlive {
			t.Errorf("a living node is %s", rec.State)
		}
	})
}

// A key that is gone must have been seen missing for a lease: an operator may have
// deleted the key of a node that lives.
func TestAMissingKeyIsFencedByCreatingItAfterALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		p := peers(b, bootClock())
		if dead, wait, _ := p.Dead(t.Context(), "X", "Y"); dead || wait != time.Second {
			t.Errorf("dead=%v wait=%v at first sight, want to look again in a second", dead, wait)
		}
		time.Sleep(lease)
		if dead, _, err := p.Dead(t.Context(), "X", "Y"); !dead {
			t.Errorf("not dead: %v", err)
		}
		if rec, _, err := b.Read(t.Context(), "X"); err != nil || rec.State != exchange.NodeFenced {
			t.Errorf("record %+v, %v", rec, err)
		}
	})
}

// Whatever stops the heartbeats, the trust ends.
func TestTrustRunsOutWhenNobodyHeartbeatsAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := node.New(node.Config{Store: newBucket(), Record: func() exchange.Node { return exchange.Node{} }, Name: "A", Lease: lease, Boot: bootClock()})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		<-n.Ready()
		cancel()
		<-ended
		time.Sleep(trust + time.Second)
		if !errors.Is(context.Cause(n.Context()), job.ErrLeaseLost) {
			t.Errorf("a second after its trust its context ended with %v, want %v", context.Cause(n.Context()), job.ErrLeaseLost)
		}
	})
}

// Invariant 8: the same write again, not another one at the same revision.
func TestAnUnansweredHeartbeatIsRepeatedAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.FailNext(memstore.LostAnswer)
		n, ended := start(t, b, "A", bootClock())
		<-n.Ready()
		time.Sleep(beatin)
		b.FailNext(memstore.LostAnswer)
		time.Sleep(5 * beatin)
		select {
		case err := <-ended:
			t.Errorf("its own copy was taken for a fence: %v", err)
		default:
		}
		if !n.Trusted() {
			t.Error("not trusted")
		}
	})
}

func TestAStoppedNodeIsDeadAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		n := node.New(node.Config{Store: b, Record: func() exchange.Node { return exchange.Node{} }, Name: "X", Lease: lease, Boot: bootClock()})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		<-n.Ready()
		cancel()
		<-ended
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n.Trusted() {
			t.Error("trusted after its last word")
		}
		if dead, _, err := peers(b, bootClock()).Dead(t.Context(), "X", "Y"); !dead {
			t.Errorf("not dead after its last word: %v", err)
		}
	})
}

// Invariant 4, in a storm: whatever the delays and lost answers, no node is proved
// dead while it trusts itself.
func TestNobodyIsProvedDeadWhileItTrustsItself(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { storm(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func storm(t *testing.T, r *rand.Rand) {
	b := newBucket()
	var mu sync.Mutex
	ask := rand.New(rand.NewPCG(r.Uint64(), 2)) // the test's own; r is the bucket's
	bad := 0
	b.delay = func() (time.Duration, time.Duration, bool) {
		mu.Lock()
		defer mu.Unlock()
		if bad--; bad < 0 && r.IntN(12) == 0 {
			bad = r.IntN(8)
		}
		if bad > 0 {
			return upTo(r, 25*time.Second), upTo(r, 10*time.Second), r.IntN(2) == 0
		}
		return upTo(r, 20*time.Millisecond), upTo(r, 20*time.Millisecond), false
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := peers(b, bootClock())
	go func() { _ = p.Watch(ctx, b, nil) }()
	for incarnation := range 6 {
		name := fmt.Sprint("X", incarnation)
		n, ended := start(t, b, name, bootClock())
		for lost := false; !lost; {
			select {
			case <-ended:
				lost = true
			case <-time.After(upTo(ask, 2*time.Second)):
			}
			asking, done := context.WithTimeout(ctx, 5*time.Second) // this bucket does not repeat itself
			dead, _, _ := p.Dead(asking, name, "Y")
			done()
			if dead && n.Trusted() {
				t.Fatalf("%s was proved dead while it trusts itself", name)
			}
			if time.Since(startOfBubble) > 6*time.Hour {
				return // calm enough to live on
			}
		}
	}
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// startOfBubble is when every synctest bubble begins.
var startOfBubble = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
