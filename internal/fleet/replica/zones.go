package replica

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

// zonesFor is how long a producer counts as alive after its record was last seen. It exceeds
// vouchFor, because a replica that does not watch the heartbeats reads the records of producers
// only that often.
const zonesFor = 3 * vouchFor

// zones compares the time zone data of the other nodes with that of this program: with two
// releases of the data, two nodes may compute different slots. It logs each other release once,
// with the first node that is known to have it. It is safe for concurrent use.
type zones struct {
	own string
	log *slog.Logger

	mu      sync.Mutex
	logged  map[string]bool
	newer   map[string]time.Time // the producers with newer data, and when their records were last seen
	allRead bool                 // the records of all nodes were read once
}

func newZones(own string, log *slog.Logger) *zones {
	return &zones{own: own, log: log, logged: map[string]bool{}, newer: map[string]time.Time{}}
}

// note handles the record of a node.
func (z *zones) note(e exchange.NodeEvent) {
	z.mu.Lock()
	defer z.mu.Unlock()
	n := e.Node
	alive := !e.Gone && e.Err == nil && n.State == exchange.NodeAlive
	if alive && n.Producer && n.Tzdata > z.own && (len(z.newer) < maxVouched || !z.newer[e.Name].IsZero()) {
		z.newer[e.Name] = time.Now()
	} else {
		delete(z.newer, e.Name)
	}
	if !alive || n.Tzdata == "" || n.Tzdata == z.own || z.logged[n.Tzdata] {
		return
	}
	z.logged[n.Tzdata] = true
	z.log.Warn("node has different time zone data: the two may compute different slots; run one version everywhere",
		"tzdata", z.own, "theirs", n.Tzdata, "node", n.Name, "version", n.Version)
}

// readAll reads the records of all nodes once. Until that has succeeded, or ctx has ended, behind
// reports true: otherwise a program that starts could move the watermark before it knows of a
// producer with newer data.
func (z *zones) readAll(ctx context.Context, list func(context.Context) ([]exchange.NodeEvent, error)) {
	for ctx.Err() == nil {
		all, err := list(ctx)
		if err == nil {
			for _, e := range all {
				z.note(e)
			}
			z.mu.Lock()
			defer z.mu.Unlock()
			z.allRead = true
			return
		}
		z.log.Info("cannot list the nodes yet: until then the watermark does not move if a job has a time zone", "error", err)
		wire.Wait(ctx, time.Second)
	}
}

// behind reports whether a live producer has newer time zone data, or may have.
func (z *zones) behind() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if !z.allRead {
		return true
	}
	for name, seen := range z.newer {
		if time.Since(seen) > zonesFor {
			delete(z.newer, name)
		}
	}
	return len(z.newer) > 0
}
