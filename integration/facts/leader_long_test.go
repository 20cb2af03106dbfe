//go:build long

package facts_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// TestKilledLeaderStopsWritesForSeconds is fact 10: the followers wait four to nine seconds for a message
// of their leader before they elect another. Until then no server stores a write or refuses it.
//
// Decision: an attempt of a write lasts a second or more, and is repeated until one is answered
// (internal/broker/wire). A lease, 20 s by default, lasts longer than an election: a node renews its
// trust every tenth of the lease, and the trust ends a quarter of the lease before the lease does
// (internal/fleet/node). If the test fails because elections are faster, a cluster may have shorter
// leases.
func TestKilledLeaderStopsWritesForSeconds(t *testing.T) {
	t.Parallel()
	ports := natstest.FreePorts(t, 3)
	var kill func()
	var survivor *natstest.Server
	for i, port := range ports {
		m := member{Name: fmt.Sprintf("n%d", i), Store: t.TempDir(), Port: port, Routes: ports}
		if i == 0 {
			kill = startMember(t, m)
			continue
		}
		survivor = natstest.Run(t, m.configure)
	}
	js := survivor.JetStream()
	var err error
	natstest.Eventually(t, "a cluster that takes a stream", func() bool {
		_, err = js.CreateOrUpdateStream(within(t, 5*time.Second), jetstream.StreamConfig{Name: "fact10", Subjects: []string{"fact10"}, Replicas: 3})
		return err == nil
	})
	lead(t, js.Conn(), "fact10", "n0")
	publish(t, js, "fact10")

	kill()
	killed := time.Now()
	natstest.Eventually(t, "a write after the leader was killed", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		_, err := js.Publish(ctx, "fact10", nil)
		if code(err) != 0 {
			t.Errorf("%v after the kill a write was refused: %v", time.Since(killed), err)
		}
		return err == nil
	})
	silent := time.Since(killed)
	t.Logf("no writes for %v", silent)
	if silent < 2*time.Second {
		t.Errorf("writes went on after %v", silent)
	}
}
