//go:build long && unix

package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// Four processes that Node's cluster has forked each bring up the scheduler: each slot
// runs once, and one that is killed is replaced. (examples/node/web.js)
func TestJavaScriptWebApplicationSchedulesInEachProcess(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	s := newServedSite(t)
	s.command(0, "setup", "--lease", lease.String())
	s.command(0, "job", "apply", "-f", nodeExample+"/web.yaml")
	_, port, _ := net.SplitHostPort(natstest.FreeAddress(t))
	web := start(t, "web", s.env(), nil, node, nodeExample+"/web.js", "--server", s.url, "--port", port, "--file", s.path("touched"))
	s.alive(4)
	pids := map[string]bool{}
	eventually(t, "each process to serve", func() bool {
		if body := get("http://127.0.0.1:" + port); body != "" {
			pids[body] = true
		}
		return len(pids) == 4
	})
	s.rounds("digest", 5)

	killed := strings.Split(s.nodes()[0].Node, "-")[1] // name-pid-start-random
	pid, err := strconv.Atoi(killed)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.rounds("digest", 4)
	s.alive(4) // the primary has forked another
	s.rounds("digest", 2)
	s.finish([]*process{web}, "digest")
	s.checkSlots("digest", time.Second, func(id string, begun, ended int, r slotRow) bool {
		return r.State == "succeeded" && ended == 1 && begun == r.Attempt
	})
}

// get is the answer's body, empty when there is none. Each call connects anew.
func get(url string) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

// alive waits until n nodes are.
func (s *site) alive(n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d nodes to be alive", n), func() bool {
		alive := 0
		for _, row := range s.nodes() {
			if row.State == "alive" {
				alive++
			}
		}
		return alive == n
	})
}

// A service that knows nothing of NATS is killed at work, and does each slot once.
// (examples/node/http.js and sidecar.yaml)
func TestSidecarBesideANodeServiceDoesEachSlotOnce(t *testing.T) {
	t.Parallel()
	node, missing := lookPath("node")
	need(t, "Node.js in PATH", missing)
	s := newServedSite(t)
	addr := natstest.FreeAddress(t)
	text := filetest.Read(t, nodeExample+"/sidecar.yaml")
	file := s.write("jobs.yaml", strings.NewReplacer("127.0.0.1:8080", addr, "0 7 * * MON-FRI", "* * * * * *").Replace(string(text)))
	_, port, _ := net.SplitHostPort(addr)
	serve := func() *process {
		p := start(t, "service", append(s.env(), "PORT="+port, "DONE="+s.path("done")), nil, node, nodeExample+"/http.js")
		p.says("listening on")
		return p
	}
	service := serve()
	w1, w2 := s.worker("w1", file), s.worker("w2", file)
	for range 2 {
		s.works(2)
		service.kill()
		service = serve()
	}
	s.works(3)
	s.command(0, "job", "trigger", "report", "--key", "by-hand")
	eventually(t, "the triggered run", func() bool { return s.states("report")["@by-hand"] == "succeeded" })
	term(w1)
	term(w2)
	done := map[string]int{}
	for _, key := range s.lines("done") {
		done[key]++
	}
	for _, row := range s.slots() {
		of := row.ID // which a triggered run gets in place of its instant
		if !row.Slot.IsZero() {
			of = row.ID[len("report:"):]
		}
		if row.State == "succeeded" && (done[row.ID] != 1 || !strings.Contains(row.Output, "report pdf of "+of)) {
			t.Errorf("%s was done %d times, and said %q", row.ID, done[row.ID], row.Output)
		}
		if row.State != "succeeded" && row.State != "pending" && row.State != "retrying" {
			t.Errorf("%s is %s: %s", row.ID, row.State, row.Error)
		}
	}
	if len(done) < 7 {
		t.Errorf("only %d slots", len(done))
	}
}

// The script starts three replicas and the server; each slot runs once, one replica is
// killed, and TERM ends them all. (examples/replicas)
func TestReplicasOfAServiceRunEachSlotOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	addr := natstest.FreeAddress(t)
	env := append(os.Environ(), "LISTEN="+addr, "TMPDIR="+s.dir)
	up := start(t, "up.sh", env, nil, "/bin/sh", "../examples/replicas/up.sh")
	s.url = "nats://" + addr
	ran := func() []string { return strings.Split(up.stdout(), "\n") }
	said := func(n int) {
		t.Helper()
		want := len(ran()) + n
		eventually(t, "the replicas to run slots", func() bool { return len(ran()) >= want })
	}
	said(1)
	s.nc = natstest.Connect(t, s.url)
	s.alive(3)
	said(4)
	victim := s.nodes()[0]
	pid, err := strconv.Atoi(strings.Split(victim.Node, "-")[2]) // replica-N-pid-start-random
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	said(4)
	up.signal(syscall.SIGTERM)
	if code := up.exit(); code != 0 {
		t.Errorf("up.sh ends with %d: %s", code, up.stderr())
	}
	times := map[string]int{}
	for _, line := range ran() {
		if _, id, ok := strings.Cut(line, " ran "); ok {
			if times[id]++; times[id] > 1 {
				t.Errorf("%s ran %d times", id, times[id])
			}
		}
	}
	if left, _ := os.ReadDir(s.dir); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
	eventually(t, "the server to be gone", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}
