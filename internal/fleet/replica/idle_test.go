package replica_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

var idleFleet = flag.Int("idle-fleet", 10, "how many nodes the idle fleet has")

// An idle fleet of ten nodes sends the broker less than thirty messages a second and gets less than
// three hundred. A fleet of a hundred nodes has ten times as many: heartbeats, pull requests and
// announcements grow with the number of nodes, not with its square.
func TestAnIdleFleetIsQuiet(t *testing.T) {
	s := newSite(t)
	s.lease = job.DefaultLease
	for range *idleFleet {
		s.replica(func(context.Context, job.Run) error { return nil }, func(c *replica.Config) {
			c.Jobs = []job.Job{{Name: "far", Schedule: "@yearly"}}
		})
	}
	const settle, window = 6 * time.Second, 5 * time.Second
	traffic := func() (in, out int64) {
		t.Helper()
		v, err := s.srv.Varz(nil)
		if err != nil {
			t.Fatal(err)
		}
		return v.InMsgs, v.OutMsgs
	}
	pass := func(d time.Duration) {
		t.Helper()
		end := time.Now().Add(d)
		natstest.Eventually(t, "time to pass", func() bool { return time.Now().After(end) })
	}
	pass(settle)
	from := time.Now()
	in0, out0 := traffic()
	pass(window)
	in1, out1 := traffic()
	took := time.Since(from).Seconds()
	in, out := float64(in1-in0)/took, float64(out1-out0)/took
	t.Logf("%d nodes: %.1f messages a second in, %.1f out", *idleFleet, in, out)
	if n := float64(*idleFleet); in > 3*n || out > 30*n {
		t.Errorf("more than %v in or %v out", 3*n, 30*n)
	}
}

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
