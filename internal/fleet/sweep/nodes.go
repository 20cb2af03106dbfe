package sweep

import (
	"cmp"
	"slices"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/kv"
)

const (
	// If no pass was completed for overdue, the second oldest producer makes one. The oldest may be
	// stuck, or may not exist: a login that may write the nodes bucket can invent one. Each
	// younger producer waits longer by overdue, up to maxAhead times: if a pass takes minutes
	// because the broker is slow, the passes of all producers would make it slower.
	overdue  = 3 * every
	maxAhead = 10

	// A node that was not the oldest producer does not list the nodes while another node completes passes:
	// each of hundreds of nodes would read hundreds of records. A pass is recent for swept. After unlisted the node lists them all the same, because a stored
	// end may be forged.
	swept    = every + every/2
	unlisted = 10 * every
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

// leavesItToOthers reports whether another node has just completed a pass, and this node need not list the
// nodes to know that it is not the one that sweeps: it was not the oldest producer, and nodes that start
// later are younger.
func (s *Sweeper) leavesItToOthers(last kv.SweepEnd) bool {
	now := s.cfg.Now()
	return last.Node != s.cfg.Node && now.Sub(last.Time).Abs() <= swept && now.Sub(s.youngerAt).Abs() <= unlisted
}
