package replica_test

import (
	"context"
	"flag"
	"testing"
	"time"

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
