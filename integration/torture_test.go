//go:build long && unix

package integration

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// tortureSum is the last line of what "cronce-lab torture -o json" prints.
type tortureSum struct {
	OK, Conclusive                                           bool
	Seed                                                     uint64
	Faults                                                   map[string]int
	Slots, Attempts, Takeovers, Refused, Redelivered, Fenced int
	Outcomes                                                 map[string]int
	Violations                                               int
}

// torture starts a short torture, whose temporary files are in the folder of the site.
func (s *site) torture(args ...string) *process {
	s.t.Helper()
	tmp := s.path("tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		s.t.Fatal(err)
	}
	env := append(slices.DeleteFunc(s.env(), func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") }), "TMPDIR="+tmp)
	args = append([]string{"torture", "--lease", "2s", "--duration", "16s", "--workers", "3", "--producers", "1", "-o", "json"}, args...)
	return start(s.t, "torture", env, nil, program(s.t, cronceLab), args...)
}

// leftNothing checks that the torture left no files, and on given servers no other streams than these. TestMain checks
// that it left no processes.
func (s *site) leftNothing(streams []string) {
	s.t.Helper()
	if left, err := os.ReadDir(s.path("tmp")); err != nil || len(left) > 0 {
		s.t.Errorf("temporary files are left: %v, %v", left, err)
	}
	if s.js != nil {
		if now := s.streams(); !slices.Equal(sorted(now), sorted(streams)) {
			s.t.Errorf("streams are %q, were %q", now, streams)
		}
	}
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

func TestTortureOfGivenServersFindsNoViolation(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	// These streams are another application's. Torture must not touch them.
	for _, name := range []string{"torture_other_slots", "KV_cronce_ledger"} {
		if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}}); err != nil {
			t.Fatal(err)
		}
	}
	before := s.streams()
	p := s.torture("--server", s.url, "--seed", "7")
	if code := p.exit(); code != 0 {
		t.Fatalf("exit status %d, want 0:\n%s", code, p.stdout())
	}
	s.leftNothing(before)
	lines := strings.Split(strings.TrimSpace(p.stdout()), "\n")
	var sum tortureSum
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &sum); err != nil || len(lines) != 1 {
		t.Fatalf("it prints %q: %v", lines, err)
	}
	if !sum.OK || !sum.Conclusive || sum.Violations != 0 || sum.Seed != 7 {
		t.Errorf("want no violations with seed 7, got %+v", sum)
	}
	if sum.Slots < 50 || sum.Attempts < 50 || sum.Takeovers == 0 || sum.Refused == 0 || sum.Redelivered == 0 || sum.Fenced == 0 || sum.Faults["sleep"] == 0 {
		t.Errorf("too little happened to prove anything: %+v", sum)
	}
	total := 0
	for _, n := range sum.Outcomes {
		total += n
	}
	if total != sum.Slots {
		t.Errorf("%d outcomes of %d slots: %+v", total, sum.Slots, sum)
	}
	if !strings.Contains(p.stderr(), "torturing") {
		t.Errorf("torture does not report its progress:\n%s", p.stderr())
	}
}

func TestTortureThatIsInterruptedCleansUp(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]bool{"servers of its own": false, "servers that are given": true} {
		for when, wait := range map[string]func(*site, *process){
			"while handlers run": waitForHandlers,
			"while it sets up":   waitForStreams,
		} {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				s, args := newSite(t), []string{"--duration", "1h", "--servers", "1"}
				var before []string
				if given {
					s = newServedSite(t)
					args, before = []string{"--duration", "1h", "--server", s.url}, s.streams()
				}
				p := s.torture(args...)
				wait(s, p)
				p.signal(syscall.SIGINT)
				if code := p.exit(); code != 1 || !strings.Contains(p.stderr(), "interrupted") {
					t.Errorf("exit status %d, want 1, and the word interrupted:\n%s", code, p.stderr())
				}
				s.leftNothing(before)
			})
		}
	}
}

// waitForStreams waits until the torture creates streams. If it has its own servers, waitForStreams waits until it
// starts them.
func waitForStreams(s *site, p *process) {
	p.says("torture: seed")
	if s.js != nil {
		eventually(s.t, "a stream", func() bool { return len(s.streams()) > 0 })
	}
}

// waitForHandlers waits until handlers of this torture run, and one of its processes is suspended.
func waitForHandlers(s *site, p *process) {
	child := strconv.Itoa(p.cmd.Process.Pid)
	eventually(s.t, "handlers to run, and a process to be suspended", func() bool {
		started := false
		records, _ := filepath.Glob(s.path("tmp/*/*.jsonl"))
		for _, path := range records {
			lines, _ := os.ReadFile(path)
			started = started || bytes.Contains(lines, []byte(`"what":"start"`))
		}
		if !started {
			return false
		}
		states, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, path := range states {
			stat, _ := os.ReadFile(path)
			_, state, _ := strings.Cut(string(stat), ") ")
			if f := strings.Fields(state); len(f) > 1 && f[0] == "T" && f[1] == child {
				return true
			}
		}
		return false
	})
}

func TestTortureRefusesANamespaceThatExists(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "mine_slots", Subjects: []string{"mine"}}); err != nil {
		t.Fatal(err)
	}
	before := s.streams()
	p := s.torture("--server", s.url, "--namespace", "mine")
	if code := p.exit(); code != 1 || !strings.Contains(p.stderr(), "it has the stream mine_slots") {
		t.Errorf("exit status %d, want 1 and the stream's name:\n%s", code, p.stderr())
	}
	s.leftNothing(before)
}
