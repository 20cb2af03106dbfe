package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/job"
)

// Watcher delivers every change of the nodes bucket. kv.Nodes implements it.
type Watcher interface {
	Watch(ctx context.Context, fn func(exchange.NodeEvent)) error
}

// PeersConfig configures Peers. Store, Lease and Now are required.
type PeersConfig struct {
	Store Store

	// Lease is the lease of the namespace, the shortest silence after which a node is
	// fenced.
	Lease time.Duration

	// Now is the broker's clock. It dates the record of a fenced node.
	Now func() time.Time

	// Fenced is called for each node that this process has fenced. It may be nil.
	Fenced func(dead, by string)

	// Boot reads a clock that counts suspend. It defaults to boot.Now.
	Boot func() time.Duration

	// Logger defaults to none.
	Logger *slog.Logger
}

// Peers measures how long the key of each node has been unchanged, on the clock of this
// process, and proves nodes dead. One Peers serves all incarnations of a process. It is safe
// for concurrent use.
type Peers struct {
	cfg PeersConfig

	mu       sync.Mutex
	watching bool
	seen     map[string]observation
}

// observation is the last known record of a node. since and readAt are readings of this process's
// boot clock: when the record was first observed at this revision, and when it was last observed.
type observation struct {
	node          exchange.Node
	revision      uint64
	since, readAt time.Duration
}

func (o observation) isDead() bool {
	return o.node.State == exchange.NodeFenced || o.node.State == exchange.NodeStopped
}

// readEvery is the interval at which an unwatched node is read, because another node may
// have fenced it.
const readEvery = time.Second

// maxUnwatched is how many records Peers keeps without a watch before it forgets some. A client asks
// about the owners of slots that it cancels, and a worker about those of slots that it takes over, for as
// long as their programs run. No node has the name of an earlier one.
const maxUnwatched = 1000

// NewPeers returns a Peers without any observations; see Watch.
func NewPeers(cfg PeersConfig) *Peers {
	if cfg.Boot == nil {
		cfg.Boot = boot.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Peers{cfg: cfg, seen: map[string]observation{}}
}

// Watch observes all nodes until ctx ends or the watch fails. It passes every event to also,
// which may be nil. Without a watch, Peers measures the silence of a node from the first call of
// Dead for it.
func (p *Peers) Watch(ctx context.Context, w Watcher, also func(exchange.NodeEvent)) error {
	p.setWatching(true)
	defer p.setWatching(false)
	return w.Watch(ctx, func(e exchange.NodeEvent) {
		switch {
		case e.Ready:
		case e.Err != nil:
			p.cfg.Logger.Warn("cannot read node record", "node", e.Name, "error", e.Err)
		case e.Gone:
			p.forget(e.Name)
		default:
			p.note(e.Name, e)
		}
		if also != nil {
			also(e)
		}
	})
}

// setWatching sets whether there is a watch, and forgets all observations: a new watch delivers
// them again, and without one they go stale.
func (p *Peers) setWatching(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watching = on
	clear(p.seen)
}

func (p *Peers) isWatching() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watching
}

// Guard fences every node that falls silent, in the name of by, until ctx ends. Processes that do
// not watch then find the node fenced when they read its key. Guard does nothing while Watch does
// not run.
func (p *Peers) Guard(ctx context.Context, by string) {
	tick := time.NewTicker(p.cfg.Lease / 20)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, name := range p.silent() {
			if _, _, err := p.Dead(ctx, name, by); err != nil && ctx.Err() == nil {
				p.cfg.Logger.Warn("cannot fence silent node", "node", name, "error", err)
			}
		}
	}
}

// silent returns the living nodes whose key has not changed for a whole lease.
func (p *Peers) silent() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.watching {
		return nil
	}
	for name, o := range p.seen {
		if o.node.State == exchange.NodeAlive && p.leaseLeft(o) <= 0 {
			names = append(names, name)
		}
	}
	return names
}

// leaseLeft returns how much longer the node must be silent before it may be fenced.
func (p *Peers) leaseLeft(o observation) time.Duration {
	return o.since + max(p.cfg.Lease, o.node.Lease) - p.cfg.Boot()
}

// note stores the record of a node. If the record has changed, the node's silence is measured from
// now.
func (p *Peers) note(name string, e exchange.NodeEvent) observation {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, known := p.seen[name]
	if !known && !p.watching && len(p.seen) >= maxUnwatched {
		p.evict()
	}
	if !known || e.Revision != o.revision {
		o = observation{node: e.Node, revision: e.Revision, since: p.cfg.Boot()}
	}
	o.readAt = p.cfg.Boot()
	p.seen[name] = o
	return o
}

// evict forgets the dead nodes, and those that no caller has asked about for a lease. Neither proves
// a living node dead: the record is read again, and the node's silence is then measured from the start.
func (p *Peers) evict() {
	now := p.cfg.Boot()
	maps.DeleteFunc(p.seen, func(_ string, o observation) bool { return o.isDead() || now-o.readAt > p.cfg.Lease })
}

func (p *Peers) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, name)
}

// Dead proves that the node is dead, or returns how long to wait before the next call, also after
// an error. by is the calling incarnation. A true answer is final: no write of the node can succeed
// any more.
func (p *Peers) Dead(ctx context.Context, name, by string) (dead bool, wait time.Duration, err error) {
	o, err := p.observe(ctx, name)
	left := p.leaseLeft(o)
	if err == nil && !o.isDead() && left <= 0 {
		o, err = p.fence(ctx, name, by, o)
		left = p.leaseLeft(o)
	}
	switch {
	case err != nil:
		return false, time.Second, err
	case o.isDead():
		return true, 0, nil
	case !p.isWatching():
		left = min(left, readEvery)
	}
	return false, left, nil
}

// observe returns what is known of the node. It reads the key if the node was never seen, or
// is not watched and was last read longer than readEvery ago.
func (p *Peers) observe(ctx context.Context, name string) (observation, error) {
	p.mu.Lock()
	o, known := p.seen[name]
	fresh := known && (p.watching || o.isDead() || p.cfg.Boot()-o.readAt < readEvery)
	p.mu.Unlock()
	if fresh {
		return o, nil
	}
	return p.read(ctx, name)
}

// read reads the record of a node at the bucket's leader. A node without a record is observed too,
// at the revision at which fence can create the record.
func (p *Peers) read(ctx context.Context, name string) (observation, error) {
	e, err := p.cfg.Store.Read(ctx, name)
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		return observation{}, fmt.Errorf("read node %s: %w", name, err)
	}
	return p.note(name, e), nil
}

// fence writes that a node is fenced, at the revision that was observed. It returns the observation
// after that.
func (p *Peers) fence(ctx context.Context, name, by string, o observation) (observation, error) {
	n := o.node
	n.Name, n.State, n.FencedBy, n.FencedAt = name, exchange.NodeFenced, by, p.cfg.Now()
	n.Nonce = fmt.Sprintf("%s/fence/%s/%d", by, name, o.revision)
	revision, err := p.cfg.Store.Write(ctx, n, o.revision)
	switch {
	case err == nil:
		p.cfg.Logger.Warn("fenced silent node", "node", name, "by", by, "silent", p.cfg.Boot()-o.since)
		if p.cfg.Fenced != nil {
			p.cfg.Fenced(name, by)
		}
		return p.note(name, exchange.NodeEvent{Revision: revision, Node: n}), nil
	case errors.Is(err, job.ErrConflict):
		// The node lives, or another node fenced it. The leader knows which.
		p.forget(name)
		return p.read(ctx, name)
	}
	return observation{}, fmt.Errorf("fence node %s: %w", name, err)
}
