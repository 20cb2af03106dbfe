//go:build long && unix

package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// burst is many jobs that are due in the same moment, so that there is a middle of
// publishing them.
func (s *site) burst(script string, n int) (file string, jobs []string) {
	s.t.Helper()
	var lines []string
	for i := range n {
		jobs = append(jobs, fmt.Sprintf("job%d", i))
		lines = append(lines, fmt.Sprintf(`name: job%d, schedule: "*/3 * * * * *", overlap: allow`, i))
	}
	return s.jobs(script, lines...), jobs
}

// The server that leads what matters is killed in the very moment: some of what was
// sent is stored and answered, some stored and not answered, some lost. The default
// lease outlasts an election, so that not even a second start is allowed.
func TestLeaderKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	c := newClusterSite(t)
	file, jobs := c.burst(tick, 20)
	var workers []*process
	for _, name := range []string{"w1", "w2", "w3"} {
		workers = append(workers, c.worker(name, file))
	}
	c.rounds(jobs[19], 2)
	for _, of := range []struct{ what, subject, holds, stream string }{
		{"publishing", "cronce.slot.>", "", "cronce_slots"},
		{"claiming", "$KV.cronce_ledger.>", `"state":"running"`, "KV_cronce_ledger"},
		{"completing", "$KV.cronce_ledger.>", `"state":"succeeded"`, "KV_cronce_ledger"},
	} {
		c.current()
		leader := c.leader(of.stream)
		began := time.Now()
		c.restart(leader, func(p *process) {
			c.onNext(of.subject, of.holds)
			p.kill()
		}, func() { c.rounds(jobs[19], 2) })
		t.Logf("killed %s, the leader of %s, in the middle of %s: two rounds later after %v", leader.name, of.stream, of.what, time.Since(began))
	}
	c.rounds(jobs[19], 1)
	// An ack that was lost with a leader has its message come again, to a worker that
	// finds the outcome: between two rounds nothing is left.
	c.drained()
	c.finish(workers, jobs...)
	for _, job := range jobs {
		c.checkNothingLost(job, 3*time.Second)
	}
}

// onNext waits for the next message like it, as it is on its way to the stream.
func (s *site) onNext(subject, holds string) {
	s.t.Helper()
	seen := make(chan struct{}, 1)
	sub, err := s.nc.Subscribe(subject, func(m *nats.Msg) {
		if strings.Contains(string(m.Data), holds) {
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
		s.t.Fatalf("no message on %s with %q", subject, holds)
	}
}

// An upgrade of the servers: each ends on its own terms, and comes back.
func TestServerProcessesRestartOneByOne(t *testing.T) {
	t.Parallel()
	c := newClusterSite(t)
	file, jobs := c.burst(tick, 5)
	workers := []*process{c.worker("w1", file), c.worker("w2", file)}
	c.rounds(jobs[4], 1)
	for _, m := range c.members {
		c.current()
		c.restart(m, stopMember, func() { c.rounds(jobs[4], 2) })
	}
	c.rounds(jobs[4], 2)
	c.finish(workers, jobs...)
	for _, job := range jobs {
		c.checkNothingLost(job, 3*time.Second)
	}
}

// Clients lose the server that leads, which goes on leading: the wire to it is
// silent, then cut, then slow. They go by the other two.
func TestClientsLoseTheWireToTheLeader(t *testing.T) {
	t.Parallel()
	c := newClusterSite(t)
	file, jobs := c.burst(tick, 5)
	var workers []*process
	for _, name := range []string{"w1", "w2", "w3"} {
		workers = append(workers, c.worker(name, file))
	}
	c.rounds(jobs[4], 1)
	for what, harm := range map[string]func(*wire){
		"silent": (*wire).silence,
		"cut":    (*wire).cut,
		"slow":   func(w *wire) { w.slow(100*time.Millisecond, 200*time.Millisecond) },
	} {
		leader := c.leader("cronce_slots")
		harm(leader.wire)
		c.rounds(jobs[4], 6)
		leader.wire.heal()
		c.rounds(jobs[4], 1)
		t.Logf("the wire to %s was %s", leader.name, what)
	}
	c.finish(workers, jobs...)
	for _, job := range jobs {
		c.checkEndedOnce(job, 3*time.Second)
	}
}

// checkEndedOnce allows for attempts that lost their node's lease: they count, one
// may have come to its end without being able to say so (the edge of the promise),
// and each slot still succeeded once, by its last attempt.
func (s *site) checkEndedOnce(job string, every time.Duration) {
	s.t.Helper()
	s.checkSlots(job, every, func(id string, begun, ended int, r slotRow) bool {
		return begun <= r.Attempt && 1 <= ended && ended <= begun && r.State == "succeeded" && (ended == 1 || r.Attempt > 1)
	})
}

// stopMember ends a server as an upgrade does: nats-server says 1 after TERM.
func stopMember(p *process) {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.exit()
}

// cut ends all connections, and refuses new ones.
func (w *wire) cut() { w.proxy.Stop() }
