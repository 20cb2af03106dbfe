//go:build long && unix

package integration

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// nodeClient is the client in JavaScript, which was written from docs/protocol.md.
	nodeClient = "../clients/node"

	// nodeExample has programs that use the client.
	nodeExample = "../examples/node"
)

// needNode skips the test if there is no Node.js, or if the dependencies of the client are not there. A plain "go
// test" never fetches them from the network.
func needNode(t *testing.T) (node string) {
	t.Helper()
	node, missing := lookPath("node")
	need(t, "Node.js in PATH", missing)
	if _, err := os.Stat(nodeClient + "/node_modules"); err != nil {
		need(t, "the dependencies of clients/node", `run ".ci/task node:install"`)
	}
	return node
}

// javascript starts a node in JavaScript. Its attempts take 700 ms.
func (s *site) javascript(name string, jobs ...string) *process {
	s.t.Helper()
	return s.javascriptWorking(name, "700", jobs...)
}

// javascriptWorking starts a node in JavaScript whose attempts take work milliseconds. Flags may follow the jobs.
func (s *site) javascriptWorking(name, work string, jobs ...string) *process {
	s.t.Helper()
	args := []string{nodeExample + "/service.js", "--server", s.url, "--name", name, "--file", s.path("touched"), "--work", work}
	for i, j := range jobs {
		if strings.HasPrefix(j, "--") {
			args = append(args, jobs[i:]...)
			break
		}
		args = append(args, "--job", j)
	}
	return start(s.t, name, s.env(), nil, needNode(s.t), args...)
}

// The client's own tests check what the kit cannot ask.
func TestJavaScriptPassesItsOwnTests(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	p := start(t, "node --test", append(os.Environ(), "NODE_OPTIONS="), nil, node, "--test", nodeClient+"/test/")
	if code := p.exit(); code != 0 {
		t.Errorf("exit status %d:\n%s", code, p.stdout())
	}
	if !strings.Contains(p.stdout(), "\n# fail 0\n") || strings.Contains(p.stdout(), "\n# pass 0\n") {
		t.Errorf("not all tests passed, or there were none:\n%s", p.stdout())
	}
}

// Nodes in Go and in JavaScript share the work of one queue, while some are killed, and some suspended for longer
// than their lease. No slot is lost, and the slots of a job with overlap: queue run one at a time.
func TestJavaScriptAndGoAreOneFleetWhileNodesDie(t *testing.T) {
	t.Parallel()
	needNode(t)
	s := newServedSite(t)
	file := s.jobs(`
echo "start $CRONCE_SLOT_ID $CRONCE_ATTEMPT $CRONCE_FENCE $CRONCE_NODE" >>touched
sleep 0.7
echo "end $CRONCE_SLOT_ID $CRONCE_ATTEMPT $CRONCE_FENCE $CRONCE_NODE" >>touched
`, `name: tick, schedule: "* * * * * *", overlap: allow, retry: {attempts: 9, backoff: 100ms}`,
		`name: guarded, schedule: "*/2 * * * * *", overlap: queue, retry: {attempts: 9, backoff: 100ms}`,
		`name: after, after: [tick], overlap: allow, retry: {attempts: 9, backoff: 100ms}`)
	began := time.Now()
	g1 := s.worker("go1", file, "--lease", lease.String())
	g1.says("node is up")
	g2 := s.worker("go2", file)
	j1, j2 := s.javascript("js1", "tick", "guarded", "after"), s.javascript("js2", "tick", "guarded", "after")
	j1.says("takes part")
	j2.says("takes part")
	s.ranBy("js1", "js2", "go1", "go2")

	s.atWork(j1)
	j1.kill()
	s.rounds("tick", 3)
	j1 = s.javascript("js1", "tick", "guarded", "after")

	// A node that is suspended for longer than its lease is fenced, and notices that when it wakes up.
	s.atWork(j2)
	before := strings.Count(j2.stderr(), "takes part") // on a busy machine it may have lost its lease by itself
	j2.signal(syscall.SIGSTOP)
	eventually(t, "js2 to be declared dead", func() bool { return s.node("js2").State == "fenced" })
	s.rounds("tick", 2)
	j2.signal(syscall.SIGCONT)
	eventually(t, "js2 to take part again", func() bool { return strings.Count(j2.stderr(), "takes part") > before })

	// JavaScript alone publishes slots, fences the nodes in Go, and takes their slots over.
	s.atWork(g1)
	g1.kill()
	s.atWork(g2)
	g2.kill()
	s.rounds("tick", 8)

	// The server is killed twice under nodes of both. Then the nodes in JavaScript are stopped, and Go is alone.
	g1 = s.worker("go3", file)
	g1.says("node is up")
	s.restartServer((*process).kill)
	s.rounds("tick", 3)
	before = strings.Count(j1.stderr(), "takes part")
	s.restartServer(func(server *process) {
		server.kill()
		lapsed := strings.Count(j1.stderr(), "its lease lapsed")
		eventually(t, "js1 to lose its lease", func() bool { return strings.Count(j1.stderr(), "its lease lapsed") > lapsed })
		g1.says("lease lost")
	})
	eventually(t, "js1 to take part again", func() bool { return strings.Count(j1.stderr(), "takes part") > before })
	s.rounds("tick", 3)
	term(j1)
	term(j2)
	s.rounds("tick", 3)
	term(g1)

	if again := s.attemptsAfterTheFirst(); again < 4 {
		t.Errorf("%d slots were taken over, want at least 4: four nodes were killed or suspended at work", again)
	}
	for _, job := range []string{"tick", "guarded"} {
		every := map[string]time.Duration{"tick": time.Second, "guarded": 2 * time.Second}[job]
		s.checkSlots(job, every, func(id string, begun, ended int, r slotRow) bool {
			// An attempt that was killed has written its start. A later attempt writes the end.
			return r.State == "succeeded" && begun >= 1 && begun <= r.Attempt && ended >= 1 || r.State == "pending" || r.State == "retrying"
		})
	}
	s.oneAtATime("guarded")
	s.followed("tick", "after")
	s.verified(began)
}

// atWork waits until the node is in the middle of an attempt.
func (s *site) atWork(p *process) {
	s.t.Helper()
	eventually(s.t, p.name+" to be at work", func() bool {
		open := map[string]bool{}
		for _, line := range s.touched() {
			f := strings.Fields(line)
			if len(f) == 5 && (f[4] == p.name || strings.HasPrefix(f[4], p.name+"-")) {
				open[f[1]] = f[0] == "start"
			}
		}
		for _, busy := range open {
			if busy {
				return true
			}
		}
		return false
	})
}

// attemptsAfterTheFirst counts the attempts of all slots, without the first one of each.
func (s *site) attemptsAfterTheFirst() (n int) {
	s.t.Helper()
	for _, r := range s.slots() {
		n += max(r.Attempt-1, 0)
	}
	return n
}

// ranBy waits until slots have succeeded on nodes of all these names.
func (s *site) ranBy(names ...string) {
	s.t.Helper()
	eventually(s.t, "slots to run on "+strings.Join(names, ", "), func() bool {
		seen := map[string]bool{}
		for _, r := range s.slots() {
			name, _, _ := strings.Cut(r.Node, "-")
			seen[name] = seen[name] || r.State == "succeeded"
		}
		for _, name := range names {
			if !seen[name] {
				return false
			}
		}
		return true
	})
}

// followed checks that the slot of job second succeeded for each slot of job first that succeeded, except for the
// last ones.
func (s *site) followed(first, second string) {
	s.t.Helper()
	outcome := map[string]string{}
	rows := s.slots()
	for _, r := range rows {
		outcome[r.ID] = r.State
	}
	n, last := 0, s.lastSlot().Add(-3*time.Second)
	for _, r := range rows {
		if r.Job != first || r.State != "succeeded" || r.Slot.After(last) {
			continue
		}
		switch id := slotID(second, r.Slot); outcome[id] {
		case "succeeded":
			n++
		case "pending", "retrying": // the fleet was stopped before it could run
		default:
			s.t.Errorf("%s has succeeded, and %s is %q", r.ID, id, outcome[id])
		}
	}
	if n < 10 {
		s.t.Errorf("only %d slots of %s were followed to the end", n, first)
	}
}

// verified runs "cronce verify" on the slots from since until shortly before the last success.
func (s *site) verified(since time.Time) {
	s.t.Helper()
	last := s.lastSlot()
	p := s.start("verify", "verify", "--from", since.UTC().Format(time.RFC3339), "--to", last.Add(-2*time.Second).Format(time.RFC3339))
	if code := p.exit(); code != 0 {
		s.t.Errorf("verify: exit status %d:\n%s%s", code, p.stdout(), p.stderr())
	}
}

// lastSlot returns the instant of the newest slot that succeeded.
func (s *site) lastSlot() (last time.Time) {
	s.t.Helper()
	for _, r := range s.slots() {
		if r.State == "succeeded" && r.Slot.After(last) {
			last = r.Slot
		}
	}
	return last
}

// A fleet in JavaScript alone runs what is triggered, at once and by the server's timers. It cancels a slot, does
// not retry a permanent error, and replaces an older slot by a newer one.
func TestJavaScriptObeysOrdersAndPolicies(t *testing.T) {
	t.Parallel()
	needNode(t)
	s := newServedSite(t)
	s.command(0, "setup", "--lease", lease.String())
	s.command(0, "job", "apply", "-f", s.jobs("false",
		`name: pay, schedule: "@at 2099-01-01T00:00:00Z", overlap: allow`,
		`name: long, schedule: "@at 2099-01-01T00:00:00Z", queue: long`,
		`name: newest, schedule: "*/5 * * * * *", overlap: replace, queue: long`,
	))
	s.javascriptWorking("quick", "100", "pay").says("takes part")
	s.javascriptWorking("slow", "60000", "long", "newest", "--queue", "long").says("takes part")

	outcome := func(id, state string) slotRow {
		t.Helper()
		var row slotRow
		eventually(t, id+" to be "+state, func() bool {
			for _, r := range s.slots() {
				if r.ID == id {
					row = r
				}
			}
			return row.State == state
		})
		return row
	}
	later := time.Now().Add(3 * time.Second)
	s.command(0, "job", "trigger", "pay", "--key", "later", "--at", later.UTC().Format(time.RFC3339), "--payload", `{"n": 1}`)
	s.command(0, "job", "trigger", "pay", "--key", "now", "--payload", `{"n": 1.50}`)
	s.command(0, "job", "trigger", "pay", "--key", "wrong", "--payload", `"no object"`)
	s.command(0, "job", "trigger", "long", "--key", "order 1/2")
	outcome("pay:@now", "succeeded")
	if r := outcome("pay:@wrong", "failed"); r.Attempt != 1 || !strings.Contains(r.Error, "want an object") {
		t.Errorf("a permanent error: %+v", r)
	}
	outcome("long:@order 1/2", "running")
	s.command(0, "slot", "cancel", "long:@order 1/2")
	if r := outcome("long:@order 1/2", "cancelled"); r.Attempt != 1 {
		t.Errorf("cancelled: %+v", r)
	}
	if r := outcome("pay:@later", "succeeded"); r.Started.Before(later.Truncate(time.Second)) {
		t.Errorf("want it to start at %v or later: %+v", later, r)
	}
	eventually(t, "a newer slot to replace an older one", func() bool {
		for _, r := range s.slots("--job", "newest") {
			if r.State == "cancelled" && strings.Contains(r.Error, "replaced by newest:") {
				return true
			}
		}
		return false
	})
}

// Half of the workers of this torture are in JavaScript. It judges both halves by the same rules.
func TestJavaScriptKeepsThePromiseUnderTorture(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	s := newSite(t)
	p := s.torture("--lease", "3s", "--node-cmd", "'"+node+"' "+nodeClient+"/peer.js", "--seed", "6")
	p.exit()
	lines := strings.Split(strings.TrimSpace(p.stdout()), "\n")
	var sum tortureSum
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &sum); err != nil {
		t.Fatalf("%v:\n%s%s", err, p.stdout(), p.stderr())
	}
	if sum.Violations > 0 || sum.Slots < 50 || sum.Outcomes["succeeded"] == 0 {
		t.Errorf("want no violation, and some fifty slots:\n%s", p.stdout())
	}
}
