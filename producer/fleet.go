package producer

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
)

const (
	// maxActive is how many producers are active: the oldest ones. The others rest.
	maxActive = 5

	// announceEvery is how often an active producer announces itself if it has nothing new to
	// announce. A peer from which no announcement has come for peerTimeout does not count.
	announceEvery = time.Second
	peerTimeout   = 3 * announceEvery

	// peerExpiry is how long a peer is remembered after its last announcement.
	peerExpiry = time.Minute

	// distrustFor is how long a peer does not count after it did not publish its slots in time,
	// or announced slots that were not due yet.
	distrustFor = 10 * time.Second
)

// fleet is what a producer knows of the others by their announcements. It is a plain data
// structure of the session's goroutine. Its times are by this machine's clock.
type fleet struct {
	self  *peer
	peers map[string]*peer

	// rules names the versions of the rules and data that slots are computed and judged by.
	// vouched is Config.Vouched.
	rules   string
	vouched func(node string) (started time.Time, ok bool)

	// active are the producers that publish slots, the oldest first. It contains self unless
	// self rests. members is the digest of rules and of the names of the active producers.
	active  []*peer
	members uint64
	resting bool

	// epoch grows whenever members or the registry's digest changes. Shares do not change
	// within an epoch.
	epoch    uint64
	registry uint64

	auditEvery time.Duration

	// announceNow is true when another producer waits for this one's announcement.
	announceNow bool
}

// peer is a producer as its last announcement describes it.
type peer struct {
	name    string
	started time.Time
	seed    uint64

	lastHeard time.Time
	last      exchange.Announcement

	// silent is true if the peer did not announce itself in time, or left. It counts again when
	// it announces itself. A peer that did not publish its slots, or made a false
	// announcement, does not count until distrustedUntil.
	silent          bool
	distrustedUntil time.Time

	// auditAt is when the next audit of the peer is due: see startsAudit.
	auditAt time.Time

	// standby are the copies of the peer's slots, in the order in which the agenda returned
	// them.
	standby []*batch
}

func newPeer(name string, started time.Time) *peer {
	return &peer{name: name, started: started, seed: digest(name)}
}

func newFleet(cfg Config) *fleet {
	self := newPeer(cfg.Node, cfg.Started)
	return &fleet{
		self: self, vouched: cfg.Vouched, auditEvery: cfg.auditEvery, peers: map[string]*peer{}, active: []*peer{self},
		rules: fmt.Sprintf("%d %s %v %v", exchange.SlotAlgorithm, tzdata.Version, plans.LateAfter, cfg.Horizon),
	}
}

// distrust makes the peer not count for d. It never shortens the distrust that an earlier call began.
func (p *peer) distrust(d time.Duration) {
	p.distrustedUntil = plans.Later(p.distrustedUntil, time.Now().Add(d))
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// digest hashes the parts and their order.
func digest(parts ...string) uint64 {
	h := uint64(fnvOffset)
	for _, p := range parts {
		h = fnv64a(h, p) * fnvPrime // this hashes a zero byte as a separator
	}
	return mix(h)
}

// fnv64a adds s to an FNV-1a hash. Package hash/fnv would allocate.
func fnv64a(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// mix spreads a difference in a few bits over all bits (splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// owner returns the producer that publishes the job's slots: the one for which the hash of both
// names is largest. When a producer joins, it gets some jobs of each other producer. When it
// leaves, only its jobs get new owners.
func (f *fleet) owner(name string) *peer {
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

// receive takes in an announcement. It returns the peer if the peer announced that it is
// active, and a live record with the same start vouches for it.
func (f *fleet) receive(a exchange.Announcement, now time.Time) *peer {
	p := f.peers[a.Node]
	switch a.Kind {
	case exchange.AnnounceAsk:
		f.announceNow = true
		return nil
	case exchange.AnnounceLeave:
		if p != nil {
			p.silent = true
		}
		return nil
	}
	if f.vouched != nil {
		if started, ok := f.vouched(a.Node); !ok || !started.Equal(a.Started) {
			return nil
		}
	}
	if p == nil {
		p = newPeer(a.Node, a.Started)
		f.peers[a.Node] = p
	}
	if p.auditAt.IsZero() {
		p.auditAt = nextAudit(now, f.auditEvery)
	}
	if p.silent || now.Sub(p.lastHeard) > peerTimeout {
		f.announceNow = true // the peer may not know this producer yet
	}
	p.lastHeard, p.silent, p.last = now, false, a
	return p
}

// update computes which producers are active, and takes in the registry's digest. It reports
// whether shares may have changed. canAdvance is the result of agenda.canAdvance: while it is
// false, this producer rests if there are others.
func (f *fleet) update(now time.Time, canAdvance bool, registry uint64) (changed bool) {
	live := make([]*peer, 0, len(f.peers)+1)
	for name, p := range f.peers {
		switch {
		case now.Sub(p.lastHeard) > peerExpiry && len(p.standby) == 0:
			delete(f.peers, name)
		case !p.silent && now.Sub(p.lastHeard) <= peerTimeout && !now.Before(p.distrustedUntil):
			live = append(live, p)
		}
	}
	if canAdvance || len(live) == 0 {
		live = append(live, f.self)
	}
	slices.SortFunc(live, func(a, b *peer) int {
		return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.name, b.name))
	})
	live = live[:min(len(live), maxActive)]
	f.resting = !slices.Contains(live, f.self)
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

// agrees reports whether the peer's last announcement was for the members and the registry that
// this producer knows. Then both compute the same shares.
func (f *fleet) agrees(p *peer) bool {
	return p.last.Members == f.members && p.last.Registry == f.registry
}

// rank is this producer's position by age among the active ones, from 0; -1 if it rests.
func (f *fleet) rank() int { return slices.Index(f.active, f.self) }
