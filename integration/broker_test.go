//go:build long && unix

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// slowTick is an action that is likely to be in the middle of something.
const slowTick = `
echo "start $CRONCE_SLOT_ID" >>touched
sleep 1.5
echo "end $CRONCE_SLOT_ID" >>touched
`

// With a lease that outlasts the restart, not even a second start is allowed.
func TestBrokerRestartsUnderRunningSlots(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *site) {
		file := s.jobs(slowTick, `name: slow, schedule: "* * * * * *", overlap: allow`)
		workers := []*process{s.worker("w1", file), s.worker("w2", file)}
		for _, end := range []func(*process){(*process).kill, stopServer, (*process).kill} {
			s.moreEnded(2)
			s.restartServer(end)
		}
		s.moreEnded(2)
		s.finish(workers, "slow")
		s.checkNothingLost("slow", time.Second)
	})
}

// The servers are restarted one after the other, as in an upgrade. The default lease lasts longer than each
// election.
func TestClusterRestartsServerByServerUnderRunningSlots(t *testing.T) {
	t.Parallel()
	c := natstest.RunCluster(t)
	s := newSite(t)
	s.url = c.URL()
	s.connect()
	file := s.jobs(slowTick, `name: slow, schedule: "* * * * * *", overlap: allow`)
	workers := []*process{s.worker("w1", file), s.worker("w2", file)}
	for _, server := range c.Servers {
		s.moreEnded(2)
		server.Restart()
		c.WaitReady()
	}
	s.moreEnded(2)
	s.finish(workers, "slow")
	s.checkNothingLost("slow", time.Second)
}

// If the broker is away for longer than the lease, a running slot loses its attempt: the worker ends the
// action before another worker could start the slot, although no broker tells it to.
func TestBrokerAwayBeyondTheLeaseEndsWhatRuns(t *testing.T) {
	t.Parallel()
	b := newServedSite(t).beginSlot("")
	b.restartServer(func(server *process) {
		server.kill()
		b.familyIsGone() // while no broker is there that could tell it to end
	})
	r := b.ends(b.id, "succeeded")
	lines := b.touched()
	if len(lines) != 2 {
		t.Fatalf("want two starts and no survivors, got %q", lines)
	}
	_, _, fence := parseStart(t, lines[1])
	if r.Attempt != 2 || fence <= b.fence {
		t.Errorf("want attempt 2 with a larger fence than %d, got %q", b.fence, lines[1])
	}
	b.oneOutcome("succeeded", 2, fence)
	eventually(t, "both workers to be back under new names", func() bool {
		n1, n2 := b.node("w1"), b.node("w2")
		return n1.State == "alive" && n2.State == "alive" && n1.Node != b.incarnation && n2.Node != b.incarnation
	})
}

// moreEnded waits until n more slots have ended while another one runs.
func (s *site) moreEnded(n int) {
	s.t.Helper()
	want := count(s.touched(), "end ") + n
	eventually(s.t, fmt.Sprintf("%d more slots to end, and one to run", n), func() bool {
		lines := s.touched()
		ended := count(lines, "end ")
		return ended >= want && count(lines, "start ") > ended
	})
}

// rounds waits until n more slots of the job have ended.
func (s *site) rounds(job string, n int) {
	s.t.Helper()
	want := count(s.touched(), "end "+job+":") + n
	eventually(s.t, fmt.Sprintf("%d more slots of %s", n, job), func() bool {
		return count(s.touched(), "end "+job+":") >= want
	})
}

// finish pauses the jobs, waits until each of their slots is settled, and then stops
// the workers. Without the pause, a slot that is published while the workers stop stays
// pending, or its record stays running until the lease ends.
func (s *site) finish(workers []*process, jobs ...string) {
	s.t.Helper()
	s.paused = time.Now()
	for _, job := range jobs {
		s.command(0, "job", "pause", job)
	}
	s.drained()
	for _, w := range workers {
		term(w)
	}
}

// checkNothingLost checks that each slot of a job, from the first to the last one that started, started
// once, ended once and succeeded.
func (s *site) checkNothingLost(job string, every time.Duration) {
	s.t.Helper()
	s.checkSlots(job, every, func(id string, begun, ended int, r slotRow) bool {
		return begun == 1 && ended == 1 && r.State == "succeeded" && r.Attempt == 1
	})
}

func (s *site) checkSlots(job string, every time.Duration, good func(id string, begun, ended int, r slotRow) bool) {
	s.t.Helper()
	lines := s.touched()
	first, last := "~", ""
	for _, line := range lines {
		if id, ok := strings.CutPrefix(line, "start "); ok && strings.HasPrefix(id, job+":") {
			id, _, _ = strings.Cut(id, " ")
			first, last = min(first, id), max(last, id)
		}
	}
	rows := map[string]slotRow{}
	for _, r := range s.slots("--job", job) {
		rows[r.ID] = r
	}
	instant, err := time.Parse(time.RFC3339, strings.TrimPrefix(first, job+":"))
	if err != nil {
		s.t.Fatalf("job %s never ran", job)
	}
	n, again := 0, 0
	for id := first; id <= last; id = slotID(job, instant) {
		begun, ended, r := count(lines, "start "+id), count(lines, "end "+id), rows[id]
		// Just after a server has come back, one worker may still run a slot from after the pause, while
		// another one knows of the pause and has recorded an earlier slot as missed.
		inPause := !s.paused.IsZero() && instant.After(s.paused) && r.State == "missed" && begun == 0
		if !inPause && !good(id, begun, ended, r) {
			s.t.Errorf("%s started %d times, ended %d times, and is %q at attempt %d: %s", id, begun, ended, r.State, r.Attempt, r.Error)
		}
		instant = instant.Add(every)
		n, again = n+1, again+max(r.Attempt-1, 0)
	}
	s.t.Logf("%d slots of %s, %d more attempts", n, job, again)
}
