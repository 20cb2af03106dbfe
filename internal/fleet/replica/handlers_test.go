package replica_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// idleBytes returns the bytes that a server receives and sends while a replica with n handlers writes
// twenty heartbeats, and the stored list of its handlers.
func idleBytes(t *testing.T, n int) (moved int64, listed []string) {
	t.Helper()
	s := &site{t, natstest.Run(t), job.DefaultLease / 10}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("a-job-with-quite-a-long-name-%06d", i)
	}
	beats := make(chan struct{}, 1000)
	watching := s.srv.Conn()
	if _, err := watching.Subscribe("$KV.cronce_nodes.*", func(*nats.Msg) { beats <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	nc, _, _ := s.replica(func(context.Context, job.Run) error { return nil }, func(c *replica.Config) {
		c.Jobs, c.Handlers = nil, func() []string { return names }
	})
	store := kvtest.Open(t, natstest.JetStream(t, nc), kv.Options{})
	natstest.Eventually(t, "the list of handlers", func() bool {
		nodes, err := store.Nodes().List(t.Context())
		if err != nil || len(nodes) != 1 {
			return false
		}
		list, _, err := store.HandlerLists().Read(t.Context(), nodes[0].Name)
		listed = list.Jobs
		return err == nil
	})
	traffic := func() int64 {
		v, err := s.srv.Varz(nil)
		if err != nil {
			t.Fatal(err)
		}
		return v.InBytes + v.OutBytes
	}
	pass := func(n int) {
		for range n {
			waitFor(s, "a heartbeat", beats)
		}
	}
	pass(len(beats) + 20) // what a node asks at its start is over
	before := traffic()
	pass(20)
	return traffic() - before, listed
}

func TestHeartbeatsDoNotGrowWithTheHandlersOfTheNode(t *testing.T) {
	t.Parallel()
	few, _ := idleBytes(t, 10)
	many, listed := idleBytes(t, 10_000)
	t.Logf("twenty heartbeats: %d bytes with 10 handlers, %d with 10,000", few, many)
	if float64(many) > 1.2*float64(few) {
		t.Errorf("%d bytes with 10,000 handlers, more than 1.2 times %d with 10", many, few)
	}
	if len(listed) != 10_000 || !slices.IsSorted(listed) {
		t.Errorf("the list has %d handlers, want all", len(listed))
	}
}
