package replica

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/job"
)

const (
	// stuckInterval is the interval of checks for handlers that do not return. stuckLeast is
	// the shortest time that a handler has, however short the grace is.
	stuckInterval = time.Second
	stuckLeast    = 5 * time.Second
)

// watchStuck logs and reports handlers that have not returned a grace after the end of their
// context, until ctx ends. With EndOnStuck it ends the replica at the first one: in order,
// so that other handlers have their grace, and with an error. The slot of the stuck handler
// stays claimed until this node has been silent for a lease.
func (r *Replica) watchStuck(ctx context.Context, end context.CancelCauseFunc) {
	grace := max(cmp.Or(r.cfg.Grace, consumer.DefaultGrace), stuckLeast)
	tick := time.NewTicker(stuckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range r.table.Stuck(grace) {
			what := fmt.Sprintf("its handler has not returned %v after its context ended: %v", s.For.Round(time.Second), s.Cause)
			r.log.Error("handler does not return: only the end of the process ends it", "slot", s.Slot.ID(), "after", s.For.Round(time.Second), "error", s.Cause)
			r.emit(job.Event{Kind: job.EventAlert, Node: r.Stats().Node, ID: s.Slot.ID(), Job: s.Slot.Job, Error: what})
			if r.cfg.EndOnStuck {
				end(fmt.Errorf("%w: slot %s: %s", job.ErrStuck, s.Slot.ID(), what))
			}
		}
	}
}
