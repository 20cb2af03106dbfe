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
	// stuckLook is how often handlers are looked at that may not return, and
	// stuckLeast what they have at least for that, however short the grace is.
	stuckLook  = time.Second
	stuckLeast = 5 * time.Second
)

// watchStuck tells of handlers that have not returned when the grace has passed after
// the end of their context, until ctx ends. If the replica is to end for that, the
// first one is told to end: in order, so that others have their grace, and with an
// error. The stuck one's slot stays claimed until this node has been silent for a
// lease.
func (r *Replica) watchStuck(ctx context.Context, end context.CancelCauseFunc) {
	grace := max(cmp.Or(r.cfg.Grace, consumer.DefaultGrace), stuckLeast)
	tick := time.NewTicker(stuckLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range r.table.Stuck(grace) {
			what := fmt.Sprintf("its handler has not returned %v after its context ended: %v", s.For.Round(time.Second), s.Cause)
			r.log.Error("a handler does not return; it cannot be ended but with its process", "slot", s.Slot.ID(), "for", s.For.Round(time.Second), "cause", s.Cause)
			r.emit(job.Event{Kind: job.EventAlert, Node: r.Stats().Node, ID: s.Slot.ID(), Job: s.Slot.Job, Error: what})
			if r.cfg.EndOnStuck {
				end(fmt.Errorf("%w: slot %s: %s", job.ErrStuck, s.Slot.ID(), what))
			}
		}
	}
}
