package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
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

// bucket is a nodes bucket in memory. A test may delay its writes, or lose their answers.
type bucket struct {
	*memstore.Nodes

	// delay returns how long a write takes to be stored, and how long its answer takes to come
	// back. If lost is true, no answer comes.
	delay func() (there, back time.Duration, lost bool)

	mu     sync.Mutex
	refuse bool // writes are refused
}

func newBucket() *bucket { return &bucket{Nodes: memstore.New().Nodes()} }

func (b *bucket) Write(ctx context.Context, n exchange.Node, revision uint64) (uint64, error) {
	b.mu.Lock()
	refuse := b.refuse
	b.mu.Unlock()
	if refuse {
		return 0, job.ErrDenied
	}
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

// store writes a record in the place of another process.
func (b *bucket) store(t *testing.T, n exchange.Node, revision uint64) uint64 {
	t.Helper()
	n.Nonce = fmt.Sprint("test ", revision)
	stored, err := b.Nodes.Write(t.Context(), n, revision)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// recordOf returns the node's record and its revision.
func (b *bucket) recordOf(t *testing.T, name string) (exchange.Node, uint64) {
	t.Helper()
	e, err := b.Read(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return e.Node, e.Revision
}

// bootClock returns a clock that follows the clock of the synctest bubble.
func bootClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Hour + time.Since(start) }
}

func config(b *bucket, name string, boot func() time.Duration) node.Config {
	return node.Config{
		Store: b, Record: func() exchange.Node { return exchange.Node{} }, Name: name, Started: time.Now(), Lease: lease, Boot: boot,
		Acknowledged: func(uint64, time.Duration, time.Duration) {}, Failed: func() {}, Pause: func() time.Duration { return beatin },
	}
}

// start runs a node until ctx ends.
func start(t *testing.T, ctx context.Context, b *bucket, name string, boot func() time.Duration) (n *node.Node, ended <-chan error) {
	t.Helper()
	n = node.New(config(b, name, boot))
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() { n.Lose(errors.New("the test is over")) })
	return n, done
}

func peers(b *bucket, boot func() time.Duration) *node.Peers {
	return node.NewPeers(node.PeersConfig{Store: b, Lease: lease, Now: time.Now, Boot: boot})
}

func TestAHeartbeatThatIsNotPermittedIsLoggedWithTheCommandThatHelps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.refuse = true
		var log bytes.Buffer
		cfg := config(b, "A", bootClock())
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		ctx, stop := context.WithTimeout(t.Context(), 3*beatin)
		defer stop()
		n := node.New(cfg)
		_ = n.Run(ctx)
		n.Lose(errors.New("the test is over"))
		if !strings.Contains(log.String(), `msg="heartbeat failed" node=A error="not permitted`) || !strings.Contains(log.String(), "cronce auth producer worker") {
			t.Errorf("the node logs %s", &log)
		}
	})
}

func TestANodeIsNotTrustedBeforeItsFirstHeartbeatIsAcknowledged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.delay = func() (time.Duration, time.Duration, bool) { return time.Second, time.Second, false }
		n, _ := start(t, t.Context(), b, "A", bootClock())
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
		n, _ := start(t, t.Context(), b, "A", bootClock())
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
		n, ended := start(t, t.Context(), b, "A", bootClock())
		<-n.Ready()
		_, revision := b.recordOf(t, "A")
		b.store(t, exchange.Node{Name: "A", State: exchange.NodeFenced, FencedBy: "B"}, revision)
		select {
		case err := <-ended:
			if !errors.Is(err, job.ErrLeaseLost) {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(beatin + time.Second):
			t.Error("the node goes on after a heartbeat that met the fence")
		}
		if rec, _ := b.recordOf(t, "A"); rec.State != exchange.NodeFenced {
			t.Errorf("a heartbeat was written over the fence: %s", rec.State)
		}
	})
}

// A node that was suspended past its trust ends, even if its heartbeat would still be accepted.
func TestALapsedLeaseIsNeverRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		var mu sync.Mutex
		asleep := time.Duration(0)
		real := bootClock()
		boot := func() time.Duration { mu.Lock(); defer mu.Unlock(); return real() + asleep }
		n, ended := start(t, t.Context(), b, "A", boot)
		<-n.Ready()
		mu.Lock()
		asleep = trust // the machine slept: timers stood still, this clock did not
		mu.Unlock()
		if n.Trusted() {
			t.Error("trusted at once after a sleep as long as its trust")
		}
		if n.Context().Err() == nil {
			t.Error("the node is not trusted, but its context goes on: writes in it would still be sent")
		}
		if err := <-ended; !errors.Is(err, job.ErrLeaseLost) {
			t.Errorf("Run returned %v", err)
		}
		if rec, _ := b.recordOf(t, "A"); rec.State != exchange.NodeAlive {
			t.Errorf("the record is %s, want it alive: no other node has written it", rec.State)
		}
	})
}

// The machine sleeps while a heartbeat is in flight, past the trust of the one before. This one would extend
// it, but the handlers' contexts should have ended meanwhile.
func TestALeaseThatLapsedDuringAHeartbeatIsNotRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		var asleep atomic.Int64
		real := bootClock()
		beats := 0
		b.delay = func() (there, back time.Duration, lost bool) {
			if beats++; beats == 2 {
				asleep.Store(int64(trust - beatin + time.Second))
			}
			return 0, 0, false
		}
		cfg := config(b, "A", func() time.Duration { return real() + time.Duration(asleep.Load()) })
		cfg.Pause = func() time.Duration { return beatin - 50*time.Millisecond } // no check of the trust falls on the heartbeat
		n, done := node.New(cfg), make(chan error, 1)
		go func() { done <- n.Run(t.Context()) }()
		defer n.Lose(errors.New("the test is over"))
		select {
		case err := <-done:
			if !errors.Is(err, job.ErrLeaseLost) {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(beatin + 500*time.Millisecond):
			t.Error("the trust goes on after it had lapsed")
		}
	})
}

// Invariant 9: slowness is not death. If the broker takes up to a third of the lease to answer, the
// node keeps its lease and sends no more heartbeats, whichever way the delay is.
func TestSlownessIsNotDeath(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{0, 1200 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second, lease / 3} {
		for part, there := range map[string]time.Duration{"there": late, "back": 0, "both": late / 2} {
			t.Run(fmt.Sprint(late, " ", part), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newBucket()
					var beats atomic.Int64
					b.delay = func() (time.Duration, time.Duration, bool) { beats.Add(1); return there, late - there, false }
					n, ended := start(t, t.Context(), b, "A", bootClock())
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
		// A heartbeat ends the silence.
		b.store(t, exchange.Node{Name: "X", State: exchange.NodeAlive, Lease: lease}, revision)
		time.Sleep(2 * time.Second)
		if dead, _, _ := p.Dead(ctx, "X", "Y"); dead {
			t.Error("dead two seconds after a heartbeat")
		}
		time.Sleep(lease)
		if dead, _, err := p.Dead(ctx, "X", "Y"); !dead {
			t.Errorf("not dead after a lease of silence: %v", err)
		}
		rec, _ := b.recordOf(t, "X")
		if rec.State != exchange.NodeFenced || rec.FencedBy != "Y" || !rec.FencedAt.Equal(time.Now()) {
			t.Errorf("record %+v, want fenced by Y now", rec)
		}
	})
}

// If the node and the challenger have different leases, the longer one counts.
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

func TestTrustEndsAfterRunHasReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n, ended := start(t, ctx, newBucket(), "A", bootClock())
		<-n.Ready()
		cancel()
		<-ended
		time.Sleep(trust + time.Second)
		if !errors.Is(context.Cause(n.Context()), job.ErrLeaseLost) {
			t.Errorf("a second after the end of its trust the cause is %v, want %v", context.Cause(n.Context()), job.ErrLeaseLost)
		}
	})
}

func wantNotFenced(t *testing.T, n *node.Node, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		t.Errorf("the node took its own heartbeat for a fence: %v", err)
	default:
	}
	if !n.Trusted() {
		t.Error("not trusted")
	}
}

// Invariant 8: an unknown write is repeated as it is. Another write at the same revision would
// conflict with a copy that was stored.
func TestAnUnansweredHeartbeatIsRepeatedUnchanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.FailNext(memstore.LostAnswer)
		n, ended := start(t, t.Context(), b, "A", bootClock())
		<-n.Ready()
		time.Sleep(beatin)
		b.FailNext(memstore.LostAnswer)
		time.Sleep(5 * beatin)
		wantNotFenced(t, n, ended)
	})
}

// The first copy of the heartbeat was stored, its answer was lost, and the next copy is refused.
func TestAnUnansweredHeartbeatIsRepeatedAfterTheRefusalOfItsCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		n, ended := start(t, t.Context(), b, "A", bootClock())
		<-n.Ready()
		b.FailNext(memstore.LostAnswer)
		time.Sleep(beatin + beatin/2)
		b.mu.Lock()
		b.refuse = true
		b.mu.Unlock()
		time.Sleep(beatin)
		b.mu.Lock()
		b.refuse = false
		b.mu.Unlock()
		time.Sleep(5 * beatin)
		wantNotFenced(t, n, ended)
	})
}

func TestAStoppedNodeIsDeadAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		ctx, cancel := context.WithCancel(t.Context())
		n, ended := start(t, ctx, b, "X", bootClock())
		<-n.Ready()
		cancel()
		<-ended
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n.Trusted() {
			t.Error("trusted after Stop")
		}
		p := peers(b, bootClock())
		for range 2 {
			if dead, _, err := p.Dead(t.Context(), "X", "Y"); !dead {
				t.Errorf("not dead after Stop: %v", err)
			}
			time.Sleep(2 * lease)
		}
		if rec, _ := b.recordOf(t, "X"); rec.State != exchange.NodeStopped {
			t.Errorf("the record is %s: a node that has stopped was fenced", rec.State)
		}
	})
}

func TestAFencedNodeDoesNotRecordThatItHasStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		ctx, cancel := context.WithCancel(t.Context())
		n, ended := start(t, ctx, b, "X", bootClock())
		<-n.Ready()
		cancel()
		<-ended
		_, revision := b.recordOf(t, "X")
		b.store(t, exchange.Node{Name: "X", State: exchange.NodeFenced, FencedBy: "B"}, revision)
		if err := n.Stop(t.Context()); !errors.Is(err, job.ErrConflict) {
			t.Errorf("Stop returned %v", err)
		}
		if rec, _ := b.recordOf(t, "X"); rec.State != exchange.NodeFenced || rec.FencedBy != "B" {
			t.Errorf("the record is %s by %q, want the fence", rec.State, rec.FencedBy)
		}
	})
}

// Invariant 4, under random delays and lost answers.
func TestNoNodeIsProvedDeadWhileItTrustsItself(t *testing.T) {
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
	ask := rand.New(rand.NewPCG(r.Uint64(), 2)) // for the test's goroutine; the bucket uses r
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
		n, ended := start(t, t.Context(), b, name, bootClock())
		for lost := false; !lost; {
			select {
			case <-ended:
				lost = true
			case <-time.After(upTo(ask, 2*time.Second)):
			}
			asking, done := context.WithTimeout(ctx, 5*time.Second) // this bucket does not repeat a write
			dead, _, _ := p.Dead(asking, name, "Y")
			done()
			if dead && n.Trusted() {
				t.Fatalf("%s was proved dead while it trusts itself", name)
			}
			if time.Since(startOfBubble) > 6*time.Hour {
				return // the node lives long enough
			}
		}
	}
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// startOfBubble is when every synctest bubble begins.
var startOfBubble = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
