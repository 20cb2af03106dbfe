//go:build long && unix

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
)

// burst writes a job file with n jobs that are due at the same instants. So a server can be killed while it
// has only some of their slots.
func (s *site) burst(script string, n int) (file string, jobs []string) {
	s.t.Helper()
	var lines []string
	for i := range n {
		jobs = append(jobs, fmt.Sprintf("job%d", i))
		lines = append(lines, fmt.Sprintf(`name: job%d, schedule: "*/3 * * * * *", overlap: allow`, i))
	}
	return s.jobs(script, lines...), jobs
}

// The leader of a stream is killed while messages are on their way to it. It has stored and acknowledged
// some, stored others without an acknowledgement, and lost the rest. The default lease lasts longer than an
// election, so no slot may start twice.
func TestSlotsRunOnceWhenALeaderIsKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	c := newClusterSite(t)
	file, jobs := c.burst(tick, 20)
	var workers []*process
	for _, name := range []string{"w1", "w2", "w3"} {
		workers = append(workers, c.worker(name, file))
	}
	c.rounds(jobs[19], 2)
	for _, of := range []struct{ what, subject, text, stream string }{
		{"publishing", "cronce.slot.>", "", "cronce_slots"},
		{"claiming", "$KV.cronce_ledger.>", `"state":"running"`, "KV_cronce_ledger"},
		{"completing", "$KV.cronce_ledger.>", `"state":"succeeded"`, "KV_cronce_ledger"},
	} {
		c.current()
		leader := c.leader(of.stream)
		began := time.Now()
		c.restart(leader, func(p *process) {
			c.onNext(of.subject, of.text)
			p.kill()
		}, func() { c.rounds(jobs[19], 2) })
		t.Logf("killed %s, the leader of %s, in the middle of %s: two more rounds took %v", leader.name, of.stream, of.what, time.Since(began))
	}
	c.rounds(jobs[19], 1)
	// If an ack was lost with a leader, the message is delivered again, and its worker finds the outcome and
	// acks it. So the stream becomes empty between two rounds.
	c.drained()
	c.finish(workers, jobs...)
	for _, job := range jobs {
		c.checkNothingLost(job, 3*time.Second)
	}
}

// onNext waits for the next message on a subject that contains text. The test receives it while it is on
// its way to the stream.
func (s *site) onNext(subject, text string) {
	s.t.Helper()
	seen := make(chan struct{}, 1)
	sub, err := s.nc.Subscribe(subject, func(m *nats.Msg) {
		if strings.Contains(string(m.Data), text) {
			select {
			case seen <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	select {
	case <-seen:
	case <-time.After(natstest.Patience):
		s.t.Fatalf("no message on %s with %q", subject, text)
	}
}

// As in an upgrade, TERM ends one server after the other, and each is started again.
func TestSlotsRunOnceWhileServersRestartOneByOne(t *testing.T) {
	t.Parallel()
	c := newClusterSite(t)
	file, jobs := c.burst(tick, 5)
	workers := []*process{c.worker("w1", file), c.worker("w2", file)}
	c.rounds(jobs[4], 1)
	for _, m := range c.members {
		c.current()
		c.restart(m, stopServer, func() { c.rounds(jobs[4], 2) })
	}
	c.rounds(jobs[4], 2)
	c.finish(workers, jobs...)
	for _, job := range jobs {
		c.checkNothingLost(job, 3*time.Second)
	}
}

// The wire between the clients and the leader is silent, cut or slow, while the servers reach each other and
// the leader stays the leader. The clients go on over the wires to the other two.
func TestSlotsSucceedWithoutAWireToTheLeader(t *testing.T) {
	t.Parallel()
	c := newClusterSite(t)
	file, jobs := c.burst(tick, 5)
	var workers []*process
	for _, name := range []string{"w1", "w2", "w3"} {
		workers = append(workers, c.worker(name, file))
	}
	c.rounds(jobs[4], 1)
	for what, fault := range map[string]proxy.Fault{
		"silent": silent, "cut": {Cut: true}, "slow": {Delay: 100 * time.Millisecond, Late: 200 * time.Millisecond},
	} {
		leader := c.leader("cronce_slots")
		leader.wire.Set(fault)
		c.rounds(jobs[4], 6)
		leader.wire.Heal()
		c.rounds(jobs[4], 1)
		t.Logf("the wire to %s was %s", leader.name, what)
	}
	c.finish(workers, jobs...)
	for _, job := range jobs {
		c.checkSucceeded(job, 3*time.Second)
	}
}

// checkSucceeded checks that the last attempt of each slot of a job succeeded. It allows earlier attempts
// whose node lost its lease. Each of them counts, and its action may have ended although its outcome could
// not be recorded (the edge of the promise).
func (s *site) checkSucceeded(job string, every time.Duration) {
	s.t.Helper()
	s.checkSlots(job, every, func(id string, begun, ended int, r slotRow) bool {
		return begun <= r.Attempt && 1 <= ended && ended <= begun && r.State == "succeeded" && (ended == 1 || r.Attempt > 1)
	})
}
