package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/job"
)

// Store stores the records of nodes. kv.Nodes implements it.
type Store interface {
	// Read returns the last write of the record from the leader of the bucket. Without a record
	// it returns job.ErrNotFound, and the revision of the deletion marker or 0.
	Read(ctx context.Context, name string) (exchange.NodeEvent, error)

	// Write stores the record if revision is still the last one of the key. It repeats the
	// write until it is answered or ctx ends. job.ErrConflict means that the record was not
	// stored; job.ErrUnknown means that it may have been.
	Write(ctx context.Context, n exchange.Node, revision uint64) (uint64, error)
}

// Config of a Node. All fields are required, except Renewed, Boot and Logger.
type Config struct {
	Store Store

	// Record returns what the node publishes about itself. It is called before each
	// heartbeat. The Node sets Name, State, Started, Lease and Nonce.
	Record func() exchange.Node

	// Name is the name of the incarnation, and Started its start: see exchange.Node.
	Name    string
	Started time.Time

	// Lease is the lease of the namespace.
	Lease time.Duration

	// Renewed is called after each acknowledged heartbeat with the boot time until which the
	// node trusts itself. It must not block. It may be nil.
	Renewed func(until time.Duration)

	// Acknowledged is called with the revision of each acknowledged heartbeat and the boot
	// times between which the broker stamped it. It must not block.
	Acknowledged func(revision uint64, sent, acked time.Duration)

	// Failed is called after each heartbeat that was not acknowledged. It must not block.
	Failed func()

	// Pause returns how long to wait before the next heartbeat. The Node waits for at most Interval.
	Pause func() time.Duration

	// Boot reads a clock that counts suspend. It defaults to boot.Now.
	Boot func() time.Duration

	// Logger defaults to none.
	Logger *slog.Logger
}

// Interval is the longest pause between two heartbeats: a tenth of the lease.
func Interval(lease time.Duration) time.Duration { return lease / 10 }

// Margin is the last part of a lease, a quarter, in which a node that no longer trusts
// itself ends what it runs.
func Margin(lease time.Duration) time.Duration { return lease / 4 }

// Node is one incarnation.
//
// Invariants:
//   - Nothing is claimed under its name before Ready, when the first heartbeat is
//     acknowledged.
//   - Its context ends before another node can win a fence against it (invariant 4).
//   - It writes no heartbeat after its context has ended.
type Node struct {
	cfg    Config
	ready  chan struct{}
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	until  time.Duration // trust, in boot time; zero before the first heartbeat
	failed error         // why the last heartbeat failed; nil after one that was acknowledged

	// Only Run uses the rest, and Stop after Run has returned. revision is the revision of the last
	// acknowledged heartbeat. records counts the records that were made, for their nonces.
	revision uint64
	records  int

	// unanswered is a heartbeat without an answer, or nil. It is sent again unchanged until it is
	// answered: its stored copy would otherwise make the next heartbeat conflict, as a fence does
	// (invariant 8). maybeStored is true if a copy of it was not answered: the refusal of a later
	// copy does not settle it.
	unanswered      *exchange.Node
	unansweredSince time.Duration
	maybeStored     bool
}

// New returns an incarnation that has sent no heartbeat; see Run.
func New(cfg Config) *Node {
	if cfg.Boot == nil {
		cfg.Boot = boot.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Node{cfg: cfg, ready: make(chan struct{}), ctx: ctx, cancel: cancel}
}

// Name returns the name of the incarnation.
func (n *Node) Name() string { return n.cfg.Name }

// Started returns when the incarnation began: see exchange.Node.
func (n *Node) Started() time.Time { return n.cfg.Started }

// Ready is closed when the first heartbeat is acknowledged.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Context ends with cause job.ErrLeaseLost when the node can no longer prove that it is
// alive, and with job.ErrStopping after Stop.
func (n *Node) Context() context.Context { return n.ctx }

// Trusted reports whether the node may act now. Call it before each start of a handler: the context
// alone is not enough, because it ends only when a goroutine reads the clock. If the trust has
// lapsed, Trusted ends the context. So a caller in a process that was frozen sends nothing in this
// context, even if no other goroutine has run since.
func (n *Node) Trusted() bool {
	n.mu.Lock()
	begun := n.until != 0
	lapsed := begun && n.cfg.Boot() >= n.until
	n.mu.Unlock()
	if lapsed && n.ctx.Err() == nil {
		n.Lose(fmt.Errorf("%w: node %s: no heartbeat acknowledged for %v", job.ErrLeaseLost, n.cfg.Name, n.cfg.Lease-Margin(n.cfg.Lease)))
	}
	return begun && n.ctx.Err() == nil
}

// Left returns for how long the node trusts itself if no further heartbeat is acknowledged.
// It is negative once the trust has lapsed, and zero before the first heartbeat. It does not show
// that the node was fenced.
func (n *Node) Left() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.until == 0 {
		return 0
	}
	return n.until - n.cfg.Boot()
}

// Run writes heartbeats until the lease is lost or ctx ends, and returns the cause. Call it once.
// If ctx ends, the context of the node stays open until the trust lapses or the caller calls Lose or
// Stop. Call Stop when no handler runs any more.
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

// pause returns how long to wait after a heartbeat that took the given time. After one that
// took a tenth of the lease or more, the next one follows at once. If answers take a third
// of the lease, an additional pause would let the trust lapse between two of them.
func (n *Node) pause(took time.Duration) time.Duration {
	most := Interval(n.cfg.Lease)
	if took >= most {
		return 0
	}
	return min(n.cfg.Pause(), most)
}

// beat writes one heartbeat. It returns an error if the lease is lost.
func (n *Node) beat(ctx context.Context) error {
	if n.unanswered == nil {
		r := n.record(exchange.NodeAlive)
		n.unanswered, n.unansweredSince, n.maybeStored = &r, n.cfg.Boot(), false
	}
	// An answer after the end of the trust is useless. Left is 0 before the first heartbeat.
	writing, cancel := context.WithTimeout(ctx, cmp.Or(n.Left(), n.cfg.Lease-Margin(n.cfg.Lease)))
	defer cancel()
	revision, err := n.cfg.Store.Write(writing, *n.unanswered, n.revision)
	switch {
	case err == nil:
		sent := n.unansweredSince
		n.unanswered = nil
		return n.renew(revision, sent)
	case errors.Is(err, job.ErrConflict):
		return fmt.Errorf("%w: node %s was fenced, or its key was edited: %w", job.ErrLeaseLost, n.cfg.Name, err)
	case errors.Is(err, job.ErrUnknown):
		n.maybeStored = true
	case !n.maybeStored:
		n.unanswered = nil // refused: it was not stored
	}
	if ctx.Err() == nil {
		n.mu.Lock()
		n.failed = err
		n.mu.Unlock()
		n.cfg.Failed()
		log := n.cfg.Logger.With("node", n.cfg.Name, "error", err)
		if errors.Is(err, job.ErrDenied) {
			log = log.With("fix", "give the login what this prints: cronce auth producer worker")
		}
		log.Warn("heartbeat failed")
	}
	return nil
}

// Failed returns why the last heartbeat failed, or nil.
func (n *Node) Failed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

func (n *Node) record(state exchange.NodeState) exchange.Node {
	r := n.cfg.Record()
	n.records++
	r.Name, r.State, r.Started, r.Lease = n.cfg.Name, state, n.cfg.Started, n.cfg.Lease
	r.Nonce = fmt.Sprintf("%s/%d", n.cfg.Name, n.records)
	return r
}

// renew extends the trust, counted from before the first copy of the heartbeat was sent. It is not
// known which copy was stored. But a challenger counts a whole lease from when it saw the key
// change, and no copy changed the key before the first one was sent.
func (n *Node) renew(revision uint64, sent time.Duration) error {
	acked := n.cfg.Boot()
	until := sent + n.cfg.Lease - Margin(n.cfg.Lease)
	n.mu.Lock()
	first := n.until == 0
	lapsed := acked >= until || !first && acked >= n.until
	if !lapsed {
		n.until, n.failed = until, nil
	}
	n.mu.Unlock()
	if lapsed {
		return fmt.Errorf("%w: node %s was silent for too long: its last heartbeat was acknowledged too late", job.ErrLeaseLost, n.cfg.Name)
	}
	n.revision = revision
	if n.cfg.Renewed != nil {
		n.cfg.Renewed(until)
	}
	n.cfg.Acknowledged(revision, sent, acked)
	if first {
		close(n.ready)
	}
	return nil
}

// watchTrust ends the context when the trust lapses, whether or not Run still heartbeats. It
// polls the clock, because timers stand still while a machine is suspended.
func (n *Node) watchTrust() {
	interval := min(n.cfg.Lease/40, 100*time.Millisecond)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
			n.Trusted()
		}
	}
}

// Lose ends the context of the node with why as its cause. After a lease of silence, other nodes
// can take over the slots that the node has claimed.
func (n *Node) Lose(why error) {
	n.cancel(why)
	if context.Cause(n.ctx) == why { //nolint:errorlint // only the first of several callers logs
		n.cfg.Logger.Error("lease lost", "node", n.cfg.Name, "error", why)
	}
}

// Stop writes that the node has stopped, so that other nodes can take over its slots at once, and
// ends its context. Call it when Run has returned and no handler runs. If Stop fails, the other
// nodes wait for a lease of silence.
func (n *Node) Stop(ctx context.Context) error {
	n.cancel(job.ErrStopping)
	if n.revision == 0 {
		return nil
	}
	last := n.record(exchange.NodeStopped)
	_, err := n.cfg.Store.Write(ctx, last, n.revision)
	if errors.Is(err, job.ErrConflict) {
		// Run may have ended during a heartbeat that was stored after all.
		stored, readErr := n.cfg.Store.Read(ctx, n.cfg.Name)
		if readErr == nil && stored.Node.State == exchange.NodeAlive {
			_, err = n.cfg.Store.Write(ctx, last, stored.Revision)
		}
	}
	if err != nil {
		return fmt.Errorf("write that node %s has stopped: %w", n.cfg.Name, err)
	}
	return nil
}
