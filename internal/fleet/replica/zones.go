package replica

import (
	"log/slog"

	"github.com/cronce-io/cronce/job"
)

// zones tells when a node of the fleet has other time zone data than this one:
// the two may compute different slots. Each release is told of once, with the
// first node that has it: a rolling upgrade of a hundred nodes is one line. Only
// the replicas that watch the others see it, which are those that compute slots. It
// is used by one goroutine.
type zones struct {
	own  string
	log  *slog.Logger
	told map[string]bool
}

func newZones(own string, log *slog.Logger) *zones {
	return &zones{own: own, log: log, told: map[string]bool{}}
}

func (z *zones) note(e job.NodeEvent) {
	n := e.Node
	if e.Gone || e.Err != nil || n.State != job.NodeAlive || n.Tzdata == "" || n.Tzdata == z.own || z.told[n.Tzdata] {
		return
	}
	z.told[n.Tzdata] = true
	z.log.Warn("another node has other time zone data: the two may compute different slots; run one version everywhere",
		"tzdata", z.own, "theirs", n.Tzdata, "node", n.Name, "version", n.Version)
}
