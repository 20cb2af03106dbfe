package producer

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

const (
	// handful is how many producers take part: the oldest ones. The others rest.
	handful = 5

	// presence is how often a producer that takes part shows life when it has
	// nothing to say, and gone after how long without any it is taken for dead.
	presence = time.Second
	gone     = 3 * presence

	// forget is when a producer that was heard of is not remembered any more.
	forget = time.Minute

	// distrust is for how long a producer does not count that lives, agrees, and
	// does not get its slots published.
	distrust = 10 * time.Second
)

// fleet is what a producer knows of the others, by what they announce. It is a
// plain data structure, of the shift's goroutine; times are this machine's.
type fleet struct {
	self    *peer
	rules   string // by which slots are computed and judged
	vouched func(node string) (started time.Time, ok bool)
	peers   map[string]*peer

	// active are the producers that take part, the oldest first, self among
	// them, unless it rests; members is their digest.
	active  []*peer
	members uint64
	rests   bool

	// epoch grows whenever members or the registry's digest changes: shares are
	// the same within one.
	epoch    uint64
	registry uint64

	auditEvery time.Duration

	// asked says that somebody wants to hear from us.
	asked bool
}

// peer is a producer, as it was last heard.
type peer struct {
	name    string
	started time.Time
	seed    uint64

	heard time.Time
	last  core.Announcement

	// silent peers did not show life when they should have, and count again when
	// they do; distrusted ones at that time.
	silent     bool
	distrusted time.Time

	// auditAt is when a slot is next published although the peer has announced it.
	auditAt time.Time

	// standing are the copies that are held for the peer, by when they were
	// handed out.
	standing []*batch
}

func newPeer(name string, started time.Time) *peer {
	return &peer{name: name, started: started, seed: digest(name)}
}

func newFleet(cfg Config, rules core.Lateness) *fleet {
	self := newPeer(cfg.Node, cfg.Started)
	return &fleet{
		self: self, vouched: cfg.Vouched, auditEvery: cmp.Or(cfg.auditEvery, auditEvery), peers: map[string]*peer{}, active: []*peer{self},
		rules: fmt.Sprintf("%d %s %v %v", core.SlotAlgorithm, job.TzdataVersion(), rules.Late, rules.Horizon),
	}
}

func digest(parts ...string) uint64 {
	h := uint64(fnvOffset)
	for _, p := range parts {
		h = fnv64a(h, p) * fnvPrime // and a zero byte
	}
	return mix(h)
}

// mix spreads what differs in a few bits over all of them (splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// first is the producer whose share the job is: the one for which the hash of
// both is largest, so that the others' shares stay when one comes or goes.
func (f *fleet) first(name string) *peer {
	if len(f.active) == 1 {
		return f.active[0]
	}
	h := fnv64a(fnvOffset, name)
	best, most := f.self, uint64(0)
	for _, p := range f.active {
		if weight := mix(h ^ p.seed); weight >= most {
			best, most = p, weight
		}
	}
	return best
}

// fnv64a adds s to a hash/fnv, which would allocate.
func fnv64a(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// hear takes in what another producer announced, and returns that producer if it
// takes part.
func (f *fleet) hear(a core.Announcement, now time.Time) *peer {
	p := f.peers[a.Node]
	switch a.Kind {
	case core.AnnounceAsk:
		f.asked = true
		return nil
	case core.AnnounceLeave:
		if p != nil {
			p.silent = true
		}
		return nil
	}
	started, ok := a.Started, true
	if f.vouched != nil {
		started, ok = f.vouched(a.Node)
	}
	if !ok {
		return nil
	}
	if p == nil {
		p = newPeer(a.Node, started)
		f.peers[a.Node] = p
	}
	if p.auditAt.IsZero() {
		p.auditAt = nextAudit(now, f.auditEvery)
	}
	if p.silent || now.Sub(p.heard) > gone {
		f.asked = true // it does not know us either
	}
	p.heard, p.silent, p.last = now, false, a
	return p
}

// review takes stock of who takes part, and of what is known of the registry. It
// reports whether the shares may have changed. vouches is false while this
// producer cannot speak for all jobs: it leaves the field to others then, and if
// there is nobody else it does what it can.
func (f *fleet) review(now time.Time, vouches bool, registry uint64) (changed bool) {
	live := make([]*peer, 0, len(f.peers)+1)
	for name, p := range f.peers {
		switch {
		case now.Sub(p.heard) > forget && len(p.standing) == 0:
			delete(f.peers, name)
		case !p.silent && now.Sub(p.heard) <= gone && !now.Before(p.distrusted):
			live = append(live, p)
		}
	}
	if vouches || len(live) == 0 {
		live = append(live, f.self)
	}
	slices.SortFunc(live, func(a, b *peer) int {
		return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.name, b.name))
	})
	live = live[:min(len(live), handful)]
	f.rests = !slices.Contains(live, f.self)
	names := []string{f.rules}
	for _, p := range live {
		names = append(names, p.name)
	}
	members := digest(names...)
	changed = members != f.members || registry != f.registry
	f.active, f.members, f.registry = live, members, registry
	if changed {
		f.epoch++
	}
	return changed
}

// agrees reports whether the peer's last word holds for the same shares as ours.
func (f *fleet) agrees(p *peer) bool {
	return p.last.Members == f.members && p.last.Registry == f.registry
}

// place is this producer's rank by age among those that take part, from 0; -1 when
// it rests.
func (f *fleet) place() int { return slices.Index(f.active, f.self) }
