//go:build long && unix

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The broker comes back with an older copy of its files. What it acknowledged after the copy is lost, and revisions,
// and so fences, go backwards. The records of the slots of that time are lost, so these slots run again. All slots
// succeed, and those outside that time run once. Each node goes on under a new name, because the revisions that it
// knows are of no use.
func TestBrokerRestoredFromAnOlderCopyLosesNoSlot(t *testing.T) {
	t.Parallel()
	s := newForeignSite(t)
	file := s.jobs(tick, `name: tick, schedule: "* * * * * *", overlap: allow`)
	workers := []*process{s.worker("w1", file, "--lease", lease.String())}
	workers[0].says("node is up")
	workers = append(workers, s.worker("w2", file))
	s.rounds("tick", 3)
	var copied time.Time
	s.restartServer(func(p *process) {
		stopServer(p)
		copied = time.Now()
		copyFiles(t, s.path("store"), s.path("copy"))
	})
	s.rounds("tick", 5)
	names := map[string]bool{}
	for _, n := range s.nodes() {
		names[n.Node] = true
	}
	s.restartServer(func(p *process) {
		stopServer(p)
		if err := os.RemoveAll(s.path("store")); err != nil {
			t.Fatal(err)
		}
		copyFiles(t, s.path("copy"), s.path("store"))
	})
	restored := time.Now()
	eventually(t, "both nodes to start over under new names", func() bool {
		w1, w2 := s.node("w1"), s.node("w2")
		return w1.State == "alive" && w2.State == "alive" && !names[w1.Node] && !names[w2.Node]
	})
	s.rounds("tick", 3)
	s.drained()
	from, until := copied.Truncate(time.Second), restored.Add(time.Second)
	s.checkSlots("tick", time.Second, func(id string, begun, ended int, r slotRow) bool {
		again := !r.Slot.Before(from) && r.Slot.Before(until)
		return r.State == "succeeded" && ended >= 1 && (again || begun == 1 && ended == 1)
	})
	check := s.start("verify", "verify", "--from", s.firstSlot("tick").Format(time.RFC3339), "--to", restored.UTC().Format(time.RFC3339))
	if code := check.exit(); code != 0 {
		t.Errorf("verify ends with %d:\n%s%s", code, check.stdout(), check.stderr())
	}
	for _, w := range workers {
		if strings.Contains(w.stderr(), "panic") {
			t.Errorf("%s panicked", w.name)
		}
		term(w)
	}
}

// firstSlot returns the instant of the job's first slot that ran.
func (s *site) firstSlot(job string) (first time.Time) {
	s.t.Helper()
	for _, line := range s.touched() {
		text, ok := strings.CutPrefix(line, "start "+job+":")
		text, _, _ = strings.Cut(text, " ")
		at, err := time.Parse(time.RFC3339, text)
		if ok && err == nil && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(filepath.Clean(from))); err != nil {
		t.Fatal(err)
	}
}
