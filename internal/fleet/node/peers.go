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

// Watcher tells of every change of the nodes bucket. kv.Nodes satisfies it.
type Watcher interface {
	Watch(ctx context.Context, fn func(core.NodeEvent)) error
}

// PeersConfig of Peers. Store and Lease are required.
type PeersConfig struct {
	Store Store

	// Lease is the namespace's: the least that a silence must last.
	Lease time.Duration

	// Now is the broker's clock, for the record of who was fenced when.
	Now func() time.Time

	// Fenced is told of each node that this process declared dead. Nil: nobody.
	Fenced func(dead, by string)

	// Boot reads a clock that counts suspend. Nil: boot.Now.
	Boot func() time.Duration

	// Logger nil: nothing is logged.
	Logger *slog.Logger
}

// Peers notes, on this process's own clock, since when each node's key has stood
// still, and proves nodes dead. One Peers serves all incarnations of a process.
// It is safe for concurrent use.
type Peers struct {
	cfg PeersConfig

	mu       sync.Mutex
	watching bool
	seen     map[string]sight
}

// sight is what was last seen of a key, when it was first seen so, and when it was
// last looked up.
type sight struct {
	node          core.Node
	revision      uint64
	since, looked time.Duration
}

func (s sight) dead() bool {
	return s.node.State == core.NodeFenced || s.node.State == core.NodeStopped
}

// lookEvery is how often a node is looked up that is not watched: somebody else
// may have fenced it.
const lookEvery = time.Second

// NewPeers returns a Peers that has seen nothing; see Watch.
func NewPeers(cfg PeersConfig) *Peers {
	if cfg.Boot == nil {
		cfg.Boot = boot.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Peers{cfg: cfg, seen: map[string]sight{}}
}

// Watch keeps the stopwatches of all nodes until ctx ends or the watch cannot go
// on. also, if not nil, is told of every event as well. Without a watch a node's
// stopwatch begins when Dead is first asked about it.
func (p *Peers) Watch(ctx context.Context, w Watcher, also func(core.NodeEvent)) error {
	p.watch(true)
	defer p.watch(false)
	return w.Watch(ctx, func(e core.NodeEvent) {
		p.note(e)
		if also != nil {
			also(e)
		}
	})
}

// watch forgets what was seen: what it was told is not told any more, or will be
// told again.
func (p *Peers) watch(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watching = on
	clear(p.seen)
}

// Guard fences, in the name of by, every node that falls silent, until ctx ends,
// and as long as there is a watch: so that those who do not watch find it dead when
// they ask.
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
				p.cfg.Logger.Warn("a silent node cannot be fenced", "node", name, "error", err)
			}
		}
	}
}

// silent are the nodes that were seen standing still for a whole lease.
func (p *Peers) silent() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.watching {
		return nil
	}
	for name, s := range p.seen {
		if s.node.State == core.NodeAlive && p.cfg.Boot()-s.since >= max(p.cfg.Lease, s.node.Lease) {
			names = append(names, name)
		}
	}
	return names
}

func (p *Peers) note(e core.NodeEvent) {
	switch {
	case e.Ready:
	case e.Err != nil:
		p.cfg.Logger.Warn("a node's record cannot be read", "node", e.Name, "error", e.Err)
	case e.Gone:
		p.mu.Lock()
		delete(p.seen, e.Name)
		p.mu.Unlock()
	default:
		p.see(e.Name, e.Node, e.Revision)
	}
}

// see starts the stopwatch anew when the key has moved.
func (p *Peers) see(name string, n core.Node, revision uint64) sight {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, known := p.seen[name]
	if !known || revision != s.revision {
		s = sight{node: n, revision: revision, since: p.cfg.Boot()}
	}
	s.looked = p.cfg.Boot()
	p.seen[name] = s
	return s
}

// Dead proves that the node is dead, or says how long to wait before asking
// again. by is the incarnation that asks. A true answer is for good: the node
// can win no write any more.
func (p *Peers) Dead(ctx context.Context, name, by string) (dead bool, wait time.Duration, err error) {
	s, err := p.sight(ctx, name)
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
			wait = min(wait, lookEvery)
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

// sight is what is known of the node; one that was never seen, or is not watched,
// is looked up, now and then.
func (p *Peers) sight(ctx context.Context, name string) (sight, error) {
	p.mu.Lock()
	s, known := p.seen[name]
	known = known && (p.watching || s.dead() || p.cfg.Boot()-s.looked < lookEvery)
	p.mu.Unlock()
	if known {
		return s, nil
	}
	return p.look(ctx, name)
}

func (p *Peers) look(ctx context.Context, name string) (sight, error) {
	n, revision, err := p.cfg.Store.Read(ctx, name)
	if errors.Is(err, job.ErrNotFound) {
		n, err = core.Node{Name: name}, nil
	}
	if err != nil {
		return sight{}, fmt.Errorf("look up node %s: %w", name, err)
	}
	return p.see(name, n, revision), nil
}

// fence writes the node's death at the revision that was seen standing still.
func (p *Peers) fence(ctx context.Context, name, by string, s sight, lease time.Duration) (bool, time.Duration, error) {
	n := s.node
	n.Name, n.State, n.FencedBy, n.FencedAt = name, core.NodeFenced, by, p.cfg.Now()
	n.Nonce = fmt.Sprintf("%s/fence/%s/%d", by, name, s.revision)
	revision, err := p.cfg.Store.Write(ctx, n, s.revision)
	switch {
	case err == nil:
		p.see(name, n, revision)
		p.cfg.Logger.Warn("fenced a silent node", "node", name, "by", by, "silent", p.cfg.Boot()-s.since)
		if p.cfg.Fenced != nil {
			p.cfg.Fenced(name, by)
		}
		return true, 0, nil
	case errors.Is(err, job.ErrConflict):
		// It lives, or somebody else fenced it: the leader knows.
		p.mu.Lock()
		delete(p.seen, name)
		p.mu.Unlock()
		if s, err = p.look(ctx, name); err != nil {
			return false, time.Second, err
		}
		return s.dead(), lease, nil
	default:
		return false, time.Second, fmt.Errorf("fence node %s: %w", name, err)
	}
}
