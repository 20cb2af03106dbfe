//go:build long && unix

package integration

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// incidents is a receiver like PagerDuty: a trigger opens an incident of a key, and a resolve
// closes it. Beside it, it counts heartbeats.
type incidents struct {
	*httptest.Server
	mu    sync.Mutex
	open  map[string]bool
	seen  []string // what happened, such as "trigger cronce/report"
	beats map[string]int
	keys  map[string]int // idempotency keys
}

func newIncidents(t *testing.T) *incidents {
	i := &incidents{open: map[string]bool{}, beats: map[string]int{}, keys: map[string]int{}}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if r.Method == http.MethodGet {
			i.beats[r.Header.Get("Cronce-Slot-Id")]++
			return
		}
		var e struct {
			Key    string `json:"routing_key"`
			Action string `json:"event_action"`
			Dedup  string `json:"dedup_key"`
		}
		data, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(data, &e); err != nil || e.Key != strings.Repeat("k", 32) {
			t.Errorf("it got %s: %v", data, err)
		}
		i.keys[r.Header.Get("Idempotency-Key")]++
		i.open[e.Dedup] = e.Action == "trigger"
		i.seen = append(i.seen, e.Action+" "+e.Dedup)
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(i.Close)
	return i
}

// happened returns what has happened so far, and whether an incident of the key is open.
func (i *incidents) happened(key string) (seen []string, open bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.seen), i.open[key]
}

func (i *incidents) beatsOf(slot string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.beats[slot]
}

// Every node dies between the failure and the recovery, and again between the recovery and the
// next slots. Producers and workers have no more rights than "cronce auth" gives them.
func TestAnIncidentIsResolvedThoughEveryNodeDiesInBetween(t *testing.T) {
	t.Parallel()
	g := newGuardedSite(t)
	i := newIncidents(t)
	g.environment = append(g.environment, "CRONCE_ALERT_KEY="+strings.Repeat("k", 32), "CRONCE_ALERT_HEARTBEAT="+i.URL+"/T0PSECRET")
	g.does("setup", "setup", "--lease", lease.String(), "--queue", "default")
	target := `{http: {url: "` + i.URL + `"}, format: pagerduty, key: {env: CRONCE_ALERT_KEY}}`
	file := g.jobs(`[ -e good ] || { echo the output; exit 65; }`,
		`name: report, schedule: "0 0 1 1 *", on_failure: `+target+`, on_recovered: `+target+`, heartbeat: {env: CRONCE_ALERT_HEARTBEAT}`)
	g.does("operator", "job", "apply", "-f", file)
	producer := g.as("producer").worker("p", file, "--no-work")
	producer.says("node is up")
	trigger := func(key string) { g.does("operator", "job", "trigger", "report", "--key", key) }
	ends := func(key, state string) {
		t.Helper()
		eventually(t, key+" to be "+state, func() bool { return g.as("viewer").states("report")["@"+key] == state })
	}
	round := func(name string, keys map[string]string, want ...string) {
		t.Helper()
		w := g.as("worker").worker(name, file, "--no-produce")
		w.says("node is up")
		for _, key := range slices.Sorted(func(yield func(string) bool) {
			for k := range keys {
				if !yield(k) {
					return
				}
			}
		}) {
			trigger(key)
			ends(key, keys[key])
		}
		eventually(t, "the incidents of "+name, func() bool {
			seen, _ := i.happened("")
			return len(seen) >= len(want)
		})
		if seen, _ := i.happened(""); !slices.Equal(seen, want) {
			t.Fatalf("%s: it saw %q, want %q", name, seen, want)
		}
		g.unhindered(w)
		w.kill()
	}
	const open, closed = "trigger cronce/report", "resolve cronce/report"
	round("w1", map[string]string{"a": "failed"}, open)
	producer.kill()
	g.write("good", "")
	producer = g.as("producer").worker("p", file, "--no-work")
	producer.says("node is up")
	round("w2", map[string]string{"b": "succeeded"}, open, closed)
	round("w3", map[string]string{"c": "succeeded", "d": "succeeded"}, open, closed)
	for _, key := range []string{"b", "c", "d"} {
		eventually(t, "the heartbeat of "+key, func() bool { return i.beatsOf("report:@"+key) > 0 })
	}
	if i.beatsOf("report:@a") > 0 {
		t.Error("a failed slot had a heartbeat")
	}
	if strings.Contains(producer.stderr(), "T0PSECRET") {
		t.Error("the URL of the heartbeat is in the log")
	}
	g.unhindered(producer)
}

// No worker runs: the producer notices it, and a worker of another queue delivers the alert.
func TestASlotThatNoWorkerStartsIsLate(t *testing.T) {
	t.Parallel()
	g := newGuardedSite(t)
	h := newHook(t)
	g.does("setup", "setup", "--lease", lease.String(), "--queue", "default", "--queue", "other")
	file := g.write("jobs.yaml", `version: 1
jobs:
  - name: report
    schedule: "* * * * * *"
    catch_up: {policy: none}
    on_late: {after: 3s, http: {url: "`+h.URL+`"}}
    action: {exec: [/bin/true]}
`)
	g.does("operator", "job", "apply", "-f", file)
	producer := g.as("producer").worker("p", file, "--no-work")
	producer.says("node is up")
	w := g.as("worker").worker("other", file, "--no-produce", "--queue", "other")
	w.says("node is up")
	eventually(t, "an alert", func() bool { return len(h.count()) > 0 })
	for id, n := range h.count() {
		if n != 1 || !strings.HasSuffix(id, " late") {
			t.Errorf("told %s %d times", id, n)
		}
	}
	g.unhindered(producer)
	g.unhindered(w)
}
