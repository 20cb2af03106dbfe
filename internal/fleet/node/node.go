package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/job"
)

// Store is where nodes are written down. kv.Nodes satisfies it.
type Store interface {
	// Read returns the record as the leader has it, job.ErrNotFound with the
	// revision of the marker, or 0, when there is none.
	Read(ctx context.Context, name string) (core.Node, uint64, error)

	// Write stores the record if revision is still the key's last one. It
	// repeats itself until it is answered or ctx ends: job.ErrConflict is a
	// definite no, job.ErrUnknown is not.
	Write(ctx context.Context, n core.Node, revision uint64) (uint64, error)
}

// Config of a Node. Store, Record and Lease are required.
type Config struct {
	Store Store

	// Record is what the node says of itself, called before each heartbeat. Its
	// Name, State, Started, Lease and Nonce are filled in by the Node.
	Record func() core.Node

	// Name is the incarnation's name; Started when it began, by the broker's
	// clock.
	Name    string
	Started time.Time

	// Lease is the namespace's.
	Lease time.Duration

	// Renewed is told the boot time until which the node now trusts itself,
	// after each acknowledged heartbeat. It must not block. Nil: nobody is told.
	Renewed func(until time.Duration)

	// Acknowledged is told the boot times between which the heartbeat of this
	// revision was stamped by the broker. It must not block. Nil: nobody is told.
	Acknowledged func(revision uint64, sent, acked time.Duration)

	// Failed is told of each heartbeat that was not acknowledged. It must not
	// block. Nil: nobody is told.
	Failed func()

	// Pause is asked after each heartbeat how long to wait before the next one, a
	// tenth of the lease at most. Nil: always that.
	Pause func() time.Duration

	// Boot reads a clock that counts suspend. Nil: boot.Now.
	Boot func() time.Duration

	// Logger nil: nothing is logged.
	Logger *slog.Logger
}

// Margin is the part of a lease in which a node that no longer trusts itself
// ends what it runs: a quarter.
func Margin(lease time.Duration) time.Duration { return lease / 4 }

// Node is one incarnation.
//
// Invariants:
//   - Nothing is claimed under its name before Ready: the first heartbeat is
//     acknowledged.
//   - Its context ends before anybody can win a fence against it (invariant 4).
//   - Once its context has ended it writes no heartbeat any more.
type Node struct {
	cfg    Config
	ready  chan struct{}
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	until    time.Duration // trust, in boot time; zero before the first heartbeat
	revision uint64
	beats    int

	// open is a heartbeat without an answer: it is sent again as it is until it
	// is answered, since a newer one could take its own copy for a fence
	// (invariant 8). Only Run uses it.
	open     *core.Node
	openSent time.Duration
}

// New returns an incarnation that has not said anything yet; see Run.
func New(cfg Config) *Node {
	if cfg.Boot == nil {
		cfg.Boot = boot.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Node{cfg: cfg, ready: make(chan struct{}), ctx: ctx, cancel: cancel}
}

// Name is the incarnation's name.
func (n *Node) Name() string { return n.cfg.Name }

// Started is when the incarnation began, by the broker's clock.
func (n *Node) Started() time.Time { return n.cfg.Started }

// Ready is closed when the first heartbeat has been acknowledged.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Context ends, with cause job.ErrLeaseLost, when the node can no longer prove
// that it is alive, and with job.ErrStopping after Stop.
func (n *Node) Context() context.Context { return n.ctx }

// Trusted reports whether the node may act right now. Ask it before each start:
// the context ends only when somebody has looked at the clock.
func (n *Node) Trusted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ctx.Err() == nil && n.until != 0 && n.cfg.Boot() < n.until
}

// Left is for how long the node trusts itself if no further heartbeat is
// acknowledged: less than nothing when its lease is lost, zero before its first.
func (n *Node) Left() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.until == 0 {
		return 0
	}
	return n.until - n.cfg.Boot()
}

// Run heartbeats until the lease is lost or ctx ends, and returns the cause. It
// is called once. After it has returned call Stop, when nothing runs any more, or
// Lose: until then the trust that is left is still watched.
func (n *Node) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(n.ctx, func() { stop(context.Cause(n.ctx)) })()
	go n.watchTrust()
	for {
		sent := n.cfg.Boot()
		if err := n.beat(ctx); err != nil {
			n.Lose(err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(n.pause(n.cfg.Boot() - sent)):
		}
	}
}

// pause is how long to wait after a heartbeat that took so long. One that took a tenth of
// the lease is followed at once: with answers that take a third of it, a pause as well
// would make the node's trust end between two of them.
func (n *Node) pause(took time.Duration) time.Duration {
	most := n.cfg.Lease / 10
	switch {
	case took >= most:
		return 0
	case n.cfg.Pause == nil:
		return most
	}
	return min(n.cfg.Pause(), most)
}

// beat writes one heartbeat. It returns an error when the node is lost.
func (n *Node) beat(ctx context.Context) error {
	if n.open == nil {
		r := n.record(core.NodeAlive)
		n.open, n.openSent = &r, n.cfg.Boot()
	}
	writing, cancel := n.whileTrusted(ctx, n.cfg.Boot())
	defer cancel()
	revision, err := n.cfg.Store.Write(writing, *n.open, n.at())
	switch {
	case err == nil:
		sent := n.openSent
		n.open = nil
		return n.renew(revision, sent)
	case errors.Is(err, job.ErrConflict):
		return fmt.Errorf("%w: node %s was fenced, or its key was changed by hand: %w", job.ErrLeaseLost, n.cfg.Name, err)
	case !errors.Is(err, job.ErrUnknown):
		n.open = nil // refused: it did not happen
	}
	if ctx.Err() == nil {
		if n.cfg.Failed != nil {
			n.cfg.Failed()
		}
		n.cfg.Logger.Warn("heartbeat failed", "node", n.cfg.Name, "error", err)
	}
	return nil
}

// whileTrusted bounds a heartbeat by the trust that is left: an answer that comes
// later would be of no use. A first one has a lease's time.
func (n *Node) whileTrusted(ctx context.Context, now time.Duration) (context.Context, context.CancelFunc) {
	n.mu.Lock()
	until := n.until
	n.mu.Unlock()
	left := n.cfg.Lease - Margin(n.cfg.Lease)
	if until != 0 {
		left = until - now
	}
	return context.WithTimeout(ctx, left)
}

func (n *Node) at() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.revision
}

func (n *Node) record(state core.NodeState) core.Node {
	r := n.cfg.Record()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.beats++
	r.Name, r.State, r.Started, r.Lease = n.cfg.Name, state, n.cfg.Started, n.cfg.Lease
	r.Nonce = fmt.Sprintf("%s/%d", n.cfg.Name, n.beats)
	return r
}

// renew lengthens the trust, counted from before the first copy of the heartbeat was sent.
// Which copy was stored is not known. But a challenger counts a whole lease from when it
// saw the key move, which no copy did before it was sent, and none was before the first.
func (n *Node) renew(revision uint64, sent time.Duration) error {
	acked := n.cfg.Boot()
	until := sent + n.cfg.Lease - Margin(n.cfg.Lease)
	n.mu.Lock()
	first := n.until == 0
	lapsed := acked >= until || !first && acked >= n.until
	if !lapsed {
		n.until, n.revision = until, revision
	}
	n.mu.Unlock()
	if lapsed {
		return fmt.Errorf("%w: node %s was silent for too long; its last heartbeat came too late", job.ErrLeaseLost, n.cfg.Name)
	}
	if n.cfg.Renewed != nil {
		n.cfg.Renewed(until)
	}
	if n.cfg.Acknowledged != nil {
		n.cfg.Acknowledged(revision, sent, acked)
	}
	if first {
		close(n.ready)
	}
	return nil
}

// watchTrust ends the node's context when its trust runs out, whether or not
// anybody still heartbeats. It looks at the clock again and again, since timers
// stand still while a machine is suspended.
func (n *Node) watchTrust() {
	look := min(n.cfg.Lease/40, 100*time.Millisecond)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
		}
		n.mu.Lock()
		lapsed := n.until != 0 && n.cfg.Boot() >= n.until
		n.mu.Unlock()
		if lapsed {
			n.Lose(fmt.Errorf("%w: node %s has had no heartbeat acknowledged for %v", job.ErrLeaseLost, n.cfg.Name, n.cfg.Lease-Margin(n.cfg.Lease)))
			return
		}
	}
}

// Lose gives the incarnation up: its context ends with why as the cause, and what
// it claimed is free when it has been silent for a lease.
func (n *Node) Lose(why error) {
	if n.ctx.Err() == nil {
		n.cfg.Logger.Error("lease lost", "node", n.cfg.Name, "error", why)
	}
	n.cancel(why)
}

// Stop says the node's last word: what it left may be taken over at once. Call
// it when Run has returned and none of its handlers runs; it is best effort,
// silence does the same after a lease. It ends the node's context.
func (n *Node) Stop(ctx context.Context) error {
	n.cancel(job.ErrStopping)
	revision := n.at()
	if revision == 0 {
		return nil
	}
	last := n.record(core.NodeStopped)
	_, err := n.cfg.Store.Write(ctx, last, revision)
	if errors.Is(err, job.ErrConflict) {
		// Run may have ended in the middle of a heartbeat that landed after all.
		stored, at, readErr := n.cfg.Store.Read(ctx, n.cfg.Name)
		if readErr == nil && stored.State == core.NodeAlive {
			_, err = n.cfg.Store.Write(ctx, last, at)
		}
	}
	if err != nil {
		return fmt.Errorf("node %s: last word: %w", n.cfg.Name, err)
	}
	return nil
}
