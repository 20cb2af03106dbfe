//go:build unix

package integration

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Four copies of a web process each start the scheduler: each slot runs once. No
// copy knows of the others, and none was told to be the one that schedules.
func TestFourCopiesOfAWebProcessEachStartTheScheduler(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	var copies []*process
	for _, name := range []string{"copy 1", "copy 2", "copy 3", "copy 4"} {
		copies = append(copies, start(t, name, s.env(), nil, program(t, web), s.url, s.path("touched")))
	}
	for _, c := range copies {
		eventually(t, 20*time.Second, c.name+" to serve", func() bool {
			answer, err := http.Get(strings.TrimSpace(c.stdout()))
			if err != nil {
				return false
			}
			answer.Body.Close()
			return answer.StatusCode == http.StatusOK
		})
	}
	eventually(t, 20*time.Second, "four nodes that have beaten, and five runs", func() bool {
		return len(s.nodes()) == 4 && count(s.touched(), "end ") >= 5
	})
	for _, c := range copies {
		term(c)
	}
	s.checkNothingLost("digest", time.Second)
}

// A single scheduler is a single point of failure. Here there is none: each of the
// three nodes is killed, and the one of the three servers that leads, and nothing
// stops.
func TestNoSinglePointOfFailure(t *testing.T) {
	t.Parallel()
	c := newClusterSite(t)
	file := c.jobs(tick, `name: tick, schedule: "* * * * * *", overlap: allow`)
	more := func() {
		t.Helper()
		c.rounds("tick", 3, time.Minute)
	}
	var workers []*process
	for _, name := range []string{"w1", "w2", "w3"} {
		workers = append(workers, c.worker(name, file))
	}
	more()
	for _, w := range workers {
		killed := time.Now()
		w.kill()
		more()
		c.checkPublished(killed, time.Now().Add(-time.Second), 2*time.Second) // another one publishes at once
		c.worker(w.name+"-again", file).says("node is up")
	}
	began := time.Now()
	c.current()
	c.restart(c.leader("cronce_slots"), (*process).kill, more)
	c.checkPublished(began, time.Now().Add(-time.Second), 30*time.Second) // the servers hold an election
	c.checkSlots("tick", time.Second, func(id string, begun, ended int, r slotRow) bool {
		if r.State == "running" { // the last one, or on a killed worker whose lease is not over
			return time.Since(r.Due) < 30*time.Second
		}
		return r.State == "succeeded" && ended >= 1 && begun <= r.Attempt
	})
}

// checkPublished checks how long after its due time the broker had each slot.
func (s *site) checkPublished(from, until time.Time, limit time.Duration) {
	s.t.Helper()
	n := 0
	for _, r := range s.slots() {
		if r.Due.Before(from) || r.Due.After(until) {
			continue
		}
		n++
		if after := r.Published.Sub(r.Due); after > limit {
			s.t.Errorf("%s was published %v after it was due", r.ID, after)
		}
	}
	if n == 0 {
		s.t.Errorf("no slots between %v and %v", from, until)
	}
}

// Two applications share a server, and each has a job named "report". They are two
// jobs, with plans, leases, records and handlers of their own.
func TestNamespacesKeepSameNamedJobsOfTwoApplicationsApart(t *testing.T) {
	t.Parallel()
	shop := newServedSite(t)
	bank := newSite(t)
	bank.url = shop.url
	start := func(s *site, namespace, schedule string, args ...string) *process {
		file := s.jobs(tick, `name: report, schedule: "`+schedule+`", overlap: allow`)
		return s.worker("w", file, append(args, "--namespace", namespace)...)
	}
	w1 := start(shop, "shop", "* * * * * *", "--lease", "3s")
	w2 := start(bank, "bank", "*/2 * * * * *")
	for _, s := range []*site{shop, bank} {
		s.rounds("report", 3, 30*time.Second)
	}
	// The shop takes its report down; the bank's goes on.
	term(w1)
	rm := shop.start("job rm", "job", "rm", "report", "--namespace", "shop")
	if code := rm.exit(20 * time.Second); code != 0 {
		t.Fatalf("job rm: exit status %d: %s", code, rm.stderr())
	}
	bank.rounds("report", 2, 30*time.Second)
	term(w2)
	for _, ns := range []struct {
		*site
		name  string
		every time.Duration
	}{{shop, "shop", time.Second}, {bank, "bank", 2 * time.Second}} {
		var rows []slotRow
		for _, r := range list[slotRow](ns.site, "slot", "ls", "--namespace", ns.name) {
			if r.State == "succeeded" {
				rows = append(rows, r)
			}
		}
		if runs := count(ns.touched(), "end "); runs != len(rows) {
			t.Errorf("%s: %d runs and %d slots that succeeded", ns.name, runs, len(rows))
		}
		for i, r := range rows {
			if n := count(ns.touched(), "start "+r.ID); n != 1 || i > 0 && r.Slot.Sub(rows[i-1].Slot) != ns.every {
				t.Errorf("%s: %s ran %d times, after %s", ns.name, r.ID, n, rows[max(i-1, 0)].ID)
			}
		}
	}
	if jobs := list[struct{ Job string }](shop, "job", "ls", "--namespace", "shop"); len(jobs) != 0 {
		t.Errorf("the shop still has %+v", jobs)
	}
	if jobs := list[struct{ Job string }](bank, "job", "ls", "--namespace", "bank"); len(jobs) != 1 {
		t.Errorf("the bank has %+v", jobs)
	}
}
