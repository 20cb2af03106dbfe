//go:build long

package replica_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/job"
)

// Only some nodes of this fleet watch the heartbeats. A slot whose worker has died is taken over as soon
// as in a fleet in which all nodes watch.
func TestASlotIsTakenOverInALargeFleetWithinALeaseAndALittle(t *testing.T) {
	s := newSite(t)
	type start struct {
		run job.Run
		at  time.Time
	}
	starts := make(chan start, 100)
	conns := map[string]*nats.Conn{}
	for i := range 9 {
		host := fmt.Sprint("n", i)
		conns[host], _, _ = s.replica(func(ctx context.Context, run job.Run) error {
			starts <- start{run, time.Now()}
			if run.Attempt == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}, func(c *replica.Config) {
			c.Host = host
			c.Jobs = []job.Job{{Name: "report", Schedule: "*/15 * * * * *", Retry: job.Retry{Attempts: 2}}}
		})
	}
	first := waitFor(s, "the first attempt", starts)
	host, _, _ := strings.Cut(first.run.Node, "-")
	conns[host].Close()
	gone := time.Now()
	second := waitFor(s, "the second attempt", starts)
	for second.run.Attempt == 1 {
		second = waitFor(s, "the second attempt", starts)
	}
	if took := second.at.Sub(gone); took > s.lease+3*time.Second {
		t.Errorf("taken over %v after its worker was gone, want within the lease of %v and 3s", took, s.lease)
	} else {
		t.Logf("taken over after %v", took)
	}
}
