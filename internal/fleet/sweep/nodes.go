package sweep

import (
	"cmp"
	"slices"

	"github.com/cronce-io/cronce/internal/core/exchange"
)

// liveNodes returns the nodes that are alive, by the broker's timestamps. That is only a guess. If a
// record cannot be decoded, its node counts as alive as long as it writes heartbeats.
func (s *Sweeper) liveNodes(nodes []exchange.NodeEvent) (live []exchange.NodeEvent) {
	now := s.cfg.Now()
	for _, n := range nodes {
		if now.Sub(n.Time) < max(s.cfg.Lease, n.Node.Lease) && (n.Err != nil || n.Node.State == exchange.NodeAlive) {
			live = append(live, n)
		}
	}
	return live
}

// ahead returns how many of the live producers are older than this node. The oldest sweeps, because it
// remembers the most slots. Two sweeps at once do no harm. If this node is not among the producers, all
// are ahead of it, and at least one.
func (s *Sweeper) ahead(live []exchange.NodeEvent) int {
	var producers []exchange.Node
	for _, n := range live {
		if n.Node.Producer {
			producers = append(producers, n.Node)
		}
	}
	slices.SortFunc(producers, func(a, b exchange.Node) int { return cmp.Or(a.Began().Compare(b.Began()), cmp.Compare(a.Name, b.Name)) })
	ahead := slices.IndexFunc(producers, func(n exchange.Node) bool { return n.Name == s.cfg.Node })
	if ahead < 0 {
		ahead = max(len(producers), 1)
	}
	return ahead
}
