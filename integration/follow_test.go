//go:build long && unix

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// hook is a webhook that counts requests by idempotency key.
type hook struct {
	*httptest.Server
	mu   sync.Mutex
	told map[string]int
}

func newHook(t *testing.T) *hook {
	h := &hook{told: map[string]int{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ ID, Alert, Error string }
		data, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(data, &body); err != nil || body.ID != strings.TrimSuffix(r.Header.Get("Idempotency-Key"), "/late") || body.Alert == "" {
			t.Errorf("told %q under %q: %v", data, r.Header.Get("Idempotency-Key"), err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.told[body.ID+" "+body.Alert]++
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) count() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.told)
}

// states returns the states of a job's slots, by their IDs without the job's name.
func (s *site) states(job string) map[string]string {
	s.t.Helper()
	states := map[string]string{}
	for _, r := range s.slots("--job", job) {
		states[strings.TrimPrefix(r.ID, job+":")] = r.State
	}
	return states
}

// The worker that records the outcomes cannot publish what follows from them, and is killed while it tries.
// So it crashes just between the two.
func TestCrashBetweenAnOutcomeAndWhatFollowsLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	config := s.write("nats.conf", `authorization { users: [
		{user: free, password: x}
		{user: mute, password: x, permissions: {publish: {deny: ["cronce.slot.*.load", "cronce.event.alert.*"]}}}
	]}`)
	o, err := server.ProcessConfigFile(config)
	if err != nil {
		t.Fatal(err)
	}
	running := natstest.Run(t, func(into *server.Options) {
		o.ServerName, o.Host, o.Port, o.JetStream, o.StoreDir = into.ServerName, into.Host, into.Port, true, into.StoreDir
		*into = *o
	})
	as := func(user string) string { return strings.Replace(running.ClientURL(), "://", "://"+user+":x@", 1) }
	s.url = as("free")
	s.connect()
	h := newHook(t)
	file := s.jobs(`echo "$CRONCE_SLOT_ID" >> touched; [ $CRONCE_JOB != broken ] || exit 65`,
		`name: extract, schedule: "0 0 1 1 *"`, `name: load, after: [extract]`,
		`name: broken, schedule: "0 0 1 1 *", on_failure: {http: {url: "`+h.URL+`"}}`)
	s.worker("p", file, "--no-work", "--lease", lease.String()).says("node is up")
	s.command(0, "job", "trigger", "extract", "--key", "a")
	s.command(0, "job", "trigger", "broken", "--key", "b")

	muted := *s
	muted.url = as("mute")
	m := muted.worker("mute", file, "--no-produce")
	eventually(t, "the outcomes", func() bool {
		return s.states("extract")["@a"] == "succeeded" && s.states("broken")["@b"] == "failed"
	})
	if got := s.states("load"); len(got) > 0 || len(h.count()) > 0 {
		t.Fatalf("%v followed, and %v was told", got, h.count())
	}
	m.kill()

	w := s.worker("w", file, "--no-produce")
	w.says("node is up")
	eventually(t, "what follows", func() bool {
		return s.states("load")["@a"] == "succeeded" && h.count()["broken:@b failed"] > 0
	})
	s.drained()
	lines := s.touched()
	slices.Sort(lines)
	if want := []string{"broken:@b", "extract:@a", "load:@a"}; !slices.Equal(lines, want) {
		t.Errorf("these were run: %q, want %q, each once", lines, want)
	}
	if got := h.count(); len(got) != 1 || got["broken:@b failed"] != 1 {
		t.Errorf("told %v", got)
	}
}

// Nodes are killed all the time, while one job comes after another, messages start a third, and a fourth
// fails.
func TestChainsAlertsAndMessagesOutliveTheirNodes(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	h := newHook(t)
	retry := `, overlap: allow, retry: {attempts: 30, backoff: 100ms, max_backoff: 100ms}`
	file := s.jobs(`case $CRONCE_JOB in
broken) exit 65 ;;
charge) cat > charged.$CRONCE_SLOT_ID ;;
*) sleep 0.1 ;;
esac`,
		`name: extract, schedule: "* * * * * *"`+retry, `name: check, schedule: "* * * * * *"`+retry,
		`name: load, after: [extract, check], shards: 2`+retry, `name: report, after: [load]`+retry,
		`name: charge, on: {stream: ORDERS, subject: orders.paid}`+retry,
		`name: broken, schedule: "* * * * * *"`+retry+`, on_failure: {http: {url: "`+h.URL+`"}}`)
	const nodes, orders, rounds = 3, 200, 10
	workers := make([]*process, nodes)
	for i := range workers {
		workers[i] = s.worker(fmt.Sprintf("w%d", i), file, "--lease", lease.String())
		workers[i].says("node is up")
	}
	sent := map[string]string{}
	order := func() {
		id := fmt.Sprintf("o-%d", len(sent))
		sent["@"+id] = strings.Repeat(id, 10)
		if _, err := s.js.Publish(t.Context(), "orders.paid", []byte(sent["@"+id]), jetstream.WithMsgID(id)); err != nil {
			t.Fatal(err)
		}
	}
	for round := range rounds {
		victim := rand.IntN(nodes)
		began := len(s.states("extract"))
		for range orders / rounds {
			order()
		}
		eventually(t, "slots to begin", func() bool { return len(s.states("extract")) > began })
		workers[victim].kill()
		workers[victim] = s.worker(fmt.Sprintf("w%d", victim), file)
		t.Logf("round %d: killed w%d", round, victim)
	}
	for _, name := range []string{"extract", "check", "broken"} {
		s.command(0, "job", "pause", name)
	}
	s.drained()
	pairs := map[string]int{}
	for _, name := range []string{"extract", "check"} {
		for slot, state := range s.states(name) {
			if state == "succeeded" {
				pairs[slot]++
			} else {
				t.Logf("%s:%s is %s", name, slot, state)
			}
		}
	}
	maps.DeleteFunc(pairs, func(_ string, n int) bool { return n < 2 })
	if len(pairs) < rounds {
		t.Fatalf("only %d slots of both succeeded", len(pairs))
	}
	for _, name := range []string{"load", "report"} {
		got := s.states(name)
		maps.DeleteFunc(got, func(slot, _ string) bool { return strings.Contains(slot, "#") })
		for slot := range pairs {
			if got[slot] != "succeeded" {
				t.Errorf("%s:%s is %q, though what it comes after has succeeded", name, slot, got[slot])
			}
		}
		if len(got) != len(pairs) {
			t.Errorf("%d slots of %s follow from %d", len(got), name, len(pairs))
		}
	}
	charged := s.states("charge")
	for slot, data := range sent {
		if charged[slot] != "succeeded" || s.text("charged.charge:"+slot) != data {
			t.Errorf("charge:%s is %q", slot, charged[slot])
		}
	}
	if len(charged) != len(sent) {
		t.Errorf("%d runs of %d messages", len(charged), len(sent))
	}
	failed := map[string]bool{}
	for slot, state := range s.states("broken") {
		if state == "failed" {
			failed["broken:"+slot+" failed"] = true
		}
	}
	eventually(t, "the alerts", func() bool { return len(h.count()) >= len(failed) })
	for key, n := range h.count() {
		if !failed[key] {
			t.Errorf("told of %s, %d times", key, n)
		}
	}
	t.Logf("%d chains, %d messages, %d alerts", len(pairs), len(charged), len(failed))
	for _, w := range workers {
		w.signal(syscall.SIGTERM)
		w.exit()
	}
}

// text returns what a file contains. Empty: there is no file.
func (s *site) text(name string) string {
	data, _ := os.ReadFile(s.path(name))
	return string(data)
}
