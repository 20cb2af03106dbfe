package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/job"
)

// stuckAfter is how long the loop of the producer may go without a turn before it counts as stuck. A
// turn waits for the broker for some seconds at most, and the client drops a dead connection
// within a minute.
const stuckAfter = 3 * time.Minute

// Live returns an error if this process is stuck and only a restart helps. A missing broker or a
// lost lease does not count: a restart would end handlers that may finish, and would not bring the
// broker back. If a mutex of this process is never released, Live does not return.
func (r *Replica) Live() error {
	return checkLoop(r.Stats(), time.Now())
}

// checkLoop returns an error if the loop of the producer is stuck.
func checkLoop(s Stats, now time.Time) error {
	still := now.Sub(s.Producer.Turned)
	if s.Produces && !s.Producer.Turned.IsZero() && still > stuckAfter {
		return fmt.Errorf("the loop of the producer has not run for %v", still.Round(time.Second))
	}
	return nil
}

// Check is a condition of Ready.
type Check struct {
	Name string
	Err  error // nil if it holds

	// Informational marks a check that is shown but does not make the replica unready.
	Informational bool
}

// Ready returns the conditions under which this replica does its work.
func (r *Replica) Ready() []Check {
	s := r.Stats()
	want := func(holds bool, otherwise string) error {
		if holds {
			return nil
		}
		return errors.New(otherwise)
	}
	alive := want(s.Trust > 0, "no heartbeat was acknowledged within the lease")
	if alive != nil && s.HeartbeatError != nil {
		alive = fmt.Errorf("%w: %w", alive, s.HeartbeatError)
	}
	checks := []Check{ // each needs those before it
		{Name: "broker", Err: want(s.Connected, "not connected to NATS")},
		{Name: "heartbeat", Err: alive},
		{Name: "clock", Err: want(s.Clock, "the broker's clock is not known yet")},
		{Name: "jobs", Err: want(s.Registry, "the job registry has not been read yet")},
	}
	if r.cfg.Produce {
		checks = append(checks, Check{Name: "clocks agree", Err: r.clock.Plausible()})
	}
	for _, queue := range r.queues.get() {
		if err := r.table.Denied(queue); err != nil {
			checks = append(checks, Check{Name: "queue " + queue, Err: fmt.Errorf("no slots are taken: %w", err)})
		}
	}
	// A service that is not ready does not make this process unready, and must not
	// block its roll-out: the service may be part of the same roll-out.
	for _, queue := range slices.Sorted(maps.Keys(s.Withheld)) {
		checks = append(checks, Check{
			Name: "queue " + queue, Err: want(!s.Withheld[queue], "no slots are taken: a service that its jobs need is not ready"), Informational: true,
		})
	}
	return checks
}

const (
	// stuckInterval is the interval of checks for handlers that do not return. minStuck is the
	// shortest time after which a handler counts as stuck, however short the grace is.
	stuckInterval = time.Second
	minStuck      = 5 * time.Second
)

// watchStuck logs and reports handlers that have not returned within the grace period after their
// context ended. It runs until ctx ends. With EndOnStuck, the first such handler ends the replica
// with an error. Other handlers still get their grace period. The slot of the stuck handler stays
// claimed until this node has been silent for a lease.
func (r *Replica) watchStuck(ctx context.Context, end context.CancelCauseFunc) {
	grace := max(r.grace(), minStuck)
	for wire.Wait(ctx, stuckInterval) {
		for _, s := range r.table.Stuck(grace) {
			what := fmt.Sprintf("its handler has not returned %v after its context ended: %v", s.For.Round(time.Second), s.Cause)
			r.log.Error("handler does not return: only the end of the process stops it", "slot", s.Slot.ID(), "after", s.For.Round(time.Second), "error", s.Cause)
			r.emit(job.Event{Kind: job.EventAlert, Node: r.Stats().Node, ID: s.Slot.ID(), Job: s.Slot.Job, Error: what})
			if r.cfg.EndOnStuck {
				end(fmt.Errorf("%w: slot %s: %s", job.ErrStuck, s.Slot.ID(), what))
			}
		}
	}
}
