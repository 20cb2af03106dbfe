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

// Watcher delivers every change of the nodes bucket. kv.Nodes implements it.
type Watcher interface {
	Watch(ctx context.Context, fn func(exchange.NodeEvent)) error
}

// PeersConfig configures Peers. Store and Lease are required.
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

// Peers records since when the key of each node has not changed, on the clock of this
// process, and proves nodes dead. One Peers serves all incarnations of a process. It is safe
// for concurrent use.
type Peers struct {
	cfg PeersConfig

	mu       sync.Mutex
	watching bool
	seen     map[string]observation
}

// observation is the last known state of a key, with the times at which this state was first seen
// and last read.
type observation struct {
	node          exchange.Node
	revision      uint64
	since, readAt time.Duration
}

func (s observation) dead() bool {
	return s.node.State == exchange.NodeFenced || s.node.State == exchange.NodeStopped
}

// readEvery is the interval at which an unwatched node is read, because another node may
// have fenced it.
const readEvery = time.Second

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
		p.handle(e)
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

// Guard fences every node that falls silent, in the name of by, until ctx ends. It does nothing
// while Watch does not run. So processes that do not watch find a fenced node when they read its
// key.
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

// silent returns the nodes whose key has not changed for a whole lease.
func (p *Peers) silent() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.watching {
		return nil
	}
	for name, s := range p.seen {
		if s.node.State == exchange.NodeAlive && p.cfg.Boot()-s.since >= max(p.cfg.Lease, s.node.Lease) {
			names = append(names, name)
		}
	}
	return names
}

func (p *Peers) handle(e exchange.NodeEvent) {
	switch {
	case e.Ready:
	case e.Err != nil:
		p.cfg.Logger.Warn("cannot read node record", "node", e.Name, "error", e.Err)
	case e.Gone:
		p.mu.Lock()
		delete(p.seen, e.Name)
		p.mu.Unlock()
	default:
		p.note(e.Name, e.Node, e.Revision)
	}
}

// note stores the state of a key. If the key has changed, its silence is measured from now.
func (p *Peers) note(name string, n exchange.Node, revision uint64) observation {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, known := p.seen[name]
	if !known || revision != s.revision {
		s = observation{node: n, revision: revision, since: p.cfg.Boot()}
	}
	s.readAt = p.cfg.Boot()
	p.seen[name] = s
	return s
}

// Dead proves that the node is dead, or returns how long to wait before the next call. by is
// the calling incarnation. A true answer is final: the node can win no write any more.
func (p *Peers) Dead(ctx context.Context, name, by string) (dead bool, wait time.Duration, err error) {
	s, err := p.observe(ctx, name)
	if err != nil {
		return false, time.Second, err
	}
	if s.dead() {
		return true, 0, nil
	}
	lease := max(p.cfg.Lease, s.node.Lease)
	still := p.cfg.Boot() - s.since
	if wait = lease - still; wait > 0 {
		if !p.isWatching() {
			wait = min(wait, readEvery)
		}
		return false, wait, nil
	}
	return p.fence(ctx, name, by, s, lease)
}

func (p *Peers) isWatching() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watching
}

// observe returns what is known of the node. It reads the key if the node was never seen, or
// is not watched and was last read longer than readEvery ago.
func (p *Peers) observe(ctx context.Context, name string) (observation, error) {
	p.mu.Lock()
	s, known := p.seen[name]
	known = known && (p.watching || s.dead() || p.cfg.Boot()-s.readAt < readEvery)
	p.mu.Unlock()
	if known {
		return s, nil
	}
	return p.read(ctx, name)
}

func (p *Peers) read(ctx context.Context, name string) (observation, error) {
	n, revision, err := p.cfg.Store.Read(ctx, name)
	if errors.Is(err, job.ErrNotFound) {
		n, err = exchange.Node{Name: name}, nil
	}
	if err != nil {
		return observation{}, fmt.Errorf("read node %s: %w", name, err)
	}
	return p.note(name, n, revision), nil
}

// fence writes the death of the node at the revision that has not changed.
func (p *Peers) fence(ctx context.Context, name, by string, s observation, lease time.Duration) (bool, time.Duration, error) {
	n := s.node
	n.Name, n.State, n.FencedBy, n.FencedAt = name, exchange.NodeFenced, by, p.cfg.Now()
	n.Nonce = fmt.Sprintf("%s/fence/%s/%d", by, name, s.revision)
	revision, err := p.cfg.Store.Write(ctx, n, s.revision)
	switch {
	case err == nil:
		p.note(name, n, revision)
		p.cfg.Logger.Warn("fenced silent node", "node", name, "by", by, "silent", p.cfg.Boot()-s.since)
		if p.cfg.Fenced != nil {
			p.cfg.Fenced(name, by)
		}
		return true, 0, nil
	case errors.Is(err, job.ErrConflict):
		// The node lives, or another node fenced it. The leader knows which.
		p.mu.Lock()
		delete(p.seen, name)
		p.mu.Unlock()
		if s, err = p.read(ctx, name); err != nil {
			return false, time.Second, err
		}
		return s.dead(), lease, nil
	default:
		return false, time.Second, fmt.Errorf("fence node %s: %w", name, err)
	}
}
