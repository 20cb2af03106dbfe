//go:build long && unix

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Five servers submit the same timer task to schedulers a and b. The NATS server is away when the task ends, so
// its outcome is recorded only later, and the task does not run again. Then a and b are killed. Scheduler c joins
// and runs the task that is still pending.
func TestTimersThatSeveralServersSubmitRunOnce(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobs(`
echo "start $CRONCE_SLOT_ID" >>touched
[ "$CRONCE_SLOT_ID" = pay:@invoice-8 ] || until [ -e goon ]; do sleep 0.1; done
echo "end $CRONCE_SLOT_ID" >>touched
`, `name: pay, schedule: "@at 2099-01-01T00:00:00Z"`)
	a, b := s.worker("a", file), s.worker("b", file)
	a.says("node is up")
	b.says("node is up")
	later := time.Now().Add(45 * time.Second)
	if n := s.submit("invoice-7", time.Now().Add(2*time.Second)); n != 1 {
		t.Errorf("five servers submitted one task, and it was new to %d, want 1", n)
	}
	if n := s.submit("invoice-8", later); n != 1 {
		t.Errorf("five servers submitted one task, and it was new to %d, want 1", n)
	}
	eventually(t, "the task to run", func() bool { return count(s.touched(), "start pay:@invoice-7") == 1 })
	s.restartServer(func(server *process) {
		server.kill()
		s.write("goon", "")
		eventually(t, "the task to be done", func() bool { return count(s.touched(), "end pay:@invoice-7") == 1 })
	})
	eventually(t, "its outcome", func() bool { return s.triggered("invoice-7").State == "succeeded" })
	if n := s.submit("invoice-7", time.Now()); n != 0 {
		t.Errorf("the finished task was new to %d servers, want 0", n)
	}
	a.kill()
	b.kill()
	if time.Now().After(later) {
		t.Fatal("the machine is too slow: the pending task was due before a and b were killed")
	}
	s.worker("c", file)
	eventually(t, "the pending task to run on c", func() bool { return s.triggered("invoice-8").State == "succeeded" })
	if r := s.triggered("invoice-8"); !strings.HasPrefix(r.Node, "c-") || r.Started.Before(later.Truncate(time.Second)) {
		t.Errorf("want it on c, and not before %v: %+v", later, r)
	}
	if r := s.triggered("invoice-7"); r.Attempt != 1 || count(s.touched(), "start pay:@invoice-7") != 1 || len(s.touched()) != 4 {
		t.Errorf("want each run once, at its first attempt; got %q and %+v", s.touched(), r)
	}
}

// submit runs five commands that order the same task at the same time. It returns to how many of them the task was
// new.
func (s *site) submit(key string, at time.Time) (fresh int) {
	s.t.Helper()
	var servers []*process
	for range 5 {
		servers = append(servers, s.start("trigger "+key, "job", "trigger", "pay", "--key", key, "--at", at.UTC().Format(time.RFC3339), "-o", "json"))
	}
	for _, p := range servers {
		if code := p.exit(); code != 0 {
			s.t.Errorf("job trigger: exit status %d: %s", code, p.stderr())
		}
		var answer struct{ New bool }
		if err := json.Unmarshal([]byte(p.stdout()), &answer); err != nil {
			s.t.Errorf("job trigger: %v in %q", err, p.stdout())
		}
		if answer.New {
			fresh++
		}
	}
	return fresh
}

// triggered returns the row of the task in "slot ls".
func (s *site) triggered(key string) slotRow {
	s.t.Helper()
	for _, r := range s.slots("--job", "pay") {
		if r.ID == "pay:@"+key {
			return r
		}
	}
	return slotRow{}
}

// Each of four copies of a web process starts a scheduler. Each slot runs once, although no copy is configured as
// the one that schedules.
func TestWebProcessInFourCopiesRunsEachSlotOnce(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	var copies []*process
	for _, name := range []string{"copy 1", "copy 2", "copy 3", "copy 4"} {
		copies = append(copies, start(t, name, s.env(), nil, program(t, web), s.url, s.path("touched")))
	}
	for _, c := range copies {
		eventually(t, c.name+" to serve", func() bool {
			answer, err := http.Get(strings.TrimSpace(c.stdout()))
			if err != nil {
				return false
			}
			answer.Body.Close()
			return answer.StatusCode == http.StatusOK
		})
	}
	eventually(t, "four nodes and five runs", func() bool {
		return len(s.nodes()) == 4 && count(s.touched(), "end ") >= 5
	})
	s.finish(copies, "digest")
	s.checkNothingLost("digest", time.Second)
}

// Each of the three nodes is killed, and then the server that leads the stream of slots. The slots go on.
func TestFleetHasNoSinglePointOfFailure(t *testing.T) {
	t.Parallel()
	c := newClusterSite(t)
	file := c.jobs(tick, `name: tick, schedule: "* * * * * *", overlap: allow`)
	more := func() {
		t.Helper()
		c.rounds("tick", 3)
	}
	var workers, again []*process
	for _, name := range []string{"w1", "w2", "w3"} {
		workers = append(workers, c.worker(name, file))
	}
	more()
	for _, w := range workers {
		w.kill()
		more()
		again = append(again, c.worker(w.name+"-again", file))
		again[len(again)-1].says("node is up")
	}
	c.current()
	c.restart(c.leader("cronce_slots"), (*process).kill, more)
	c.finish(again, "tick")
	c.checkSlots("tick", time.Second, func(id string, begun, ended int, r slotRow) bool {
		return r.State == "succeeded" && ended >= 1 && begun <= r.Attempt
	})
}

// Two applications share a server, and each has a job named "report". The two jobs have their own plans, leases,
// records and handlers.
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
		s.rounds("report", 3)
	}
	// The shop removes its job. That of the bank goes on.
	term(w1)
	shop.command(0, "job", "rm", "report", "--namespace", "shop")
	bank.rounds("report", 2)
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
			t.Errorf("%s: %d runs, and %d slots that succeeded", ns.name, runs, len(rows))
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

// All machines share the work. Each runs as many slots at once as its concurrency allows, and a new machine takes
// its share.
func TestWorkIsSpreadOverAllMachinesAndGrowsWithOneMore(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	var jobs []string
	for i := range 12 {
		jobs = append(jobs, fmt.Sprintf(`name: work%d, schedule: "*/6 * * * * *", overlap: allow`, i))
	}
	file := s.jobs(`
echo "start $CRONCE_SLOT_ID $CRONCE_NODE" >>touched
sleep 1
echo "end $CRONCE_SLOT_ID $CRONCE_NODE" >>touched
`, jobs...)
	s.worker("m1", file, "--concurrency", "2").says("node is up")
	s.worker("m2", file, "--concurrency", "2").says("node is up")
	s.spread(2)
	s.worker("m3", file, "--concurrency", "2").says("node is up")
	s.spread(3)
}

// spread waits until n machines run two slots each at the same time. No machine may ever run more.
func (s *site) spread(n int) {
	s.t.Helper()
	from := len(s.touched())
	eventually(s.t, fmt.Sprintf("%d machines that are all busy at once", n), func() bool {
		busy := map[string]int{}
		for i, line := range s.touched() {
			f := strings.Fields(line)
			if busy[f[2]]++; f[0] == "end" {
				busy[f[2]] -= 2
			}
			if busy[f[2]] > 2 {
				s.t.Fatalf("%s runs %d at once", f[2], busy[f[2]])
			}
			full := 0
			for _, runs := range busy {
				if runs == 2 {
					full++
				}
			}
			if i >= from && full == n {
				return true
			}
		}
		return false
	})
}
