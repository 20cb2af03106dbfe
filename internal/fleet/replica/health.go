package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// wedged is after how long without a turn the producer's loop counts as stuck. A
// turn does not wait for the broker for longer than some seconds, and the client
// gives a dead connection up within one minute.
const wedged = 3 * time.Minute

// Live returns an error when this process is stuck in itself, so that only a restart
// helps. That the broker is away, or the lease is lost, is no such thing: to restart
// for it would end handlers that may finish, and bring no broker back. A lock
// that is never set free shows as a Live that does not return.
func (r *Replica) Live() error {
	return stuck(r.Stats(), time.Now())
}

// stuck says what stands still that should not.
func stuck(s Stats, now time.Time) error {
	still := now.Sub(s.Producer.Turned)
	if s.Produces && !s.Producer.Turned.IsZero() && still > wedged {
		return fmt.Errorf("the producer's loop has stood still for %v", still.Round(time.Second))
	}
	return nil
}

// Check is one of the things that Ready asks for.
type Check struct {
	Name string
	Err  error // nil: it is well

	// Told is one that does not count.
	Told bool
}

// Ready says what this replica needs before it does its part, and has or not.
func (r *Replica) Ready() []Check {
	s := r.Stats()
	want := func(well bool, otherwise string) error {
		if well {
			return nil
		}
		return errors.New(otherwise)
	}
	checks := []Check{
		{Name: "broker", Err: want(s.Connected, "not connected to NATS")},
		{Name: "jobs", Err: want(s.Registry, "the job registry has not been read yet")},
		{Name: "clock", Err: want(s.Clock, "the broker's clock is not known yet")},
		{Name: "heartbeat", Err: want(s.Trust > 0, "no heartbeat was acknowledged within the lease")},
	}
	if r.cfg.Produce {
		checks = append(checks, Check{Name: "clocks agree", Err: r.clock.Plausible()})
	}
	// A service that is not ready is no reason to take this process for broken, or
	// to hold up its roll-out: the service may be the one beside it.
	for _, queue := range slices.Sorted(maps.Keys(s.Withheld)) {
		checks = append(checks, Check{
			Name: "queue " + queue, Err: want(!s.Withheld[queue], "no slots are taken: a service that its jobs need is not ready"), Told: true,
		})
	}
	return checks
}
