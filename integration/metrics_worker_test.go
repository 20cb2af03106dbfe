//go:build long && unix

package integration

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// A job that fails twice, in a node that does nothing else: what it says of attempts,
// of how long they took and of the ledger is what the action, the clock and the
// stream say.
func TestMetricsOfAttemptsThatFail(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	instant := soon()
	w := s.worker("w1", s.jobs(`echo "start $CRONCE_ATTEMPT" >>touched; sleep 0.3; [ $CRONCE_ATTEMPT -gt 2 ]`,
		"name: work, retry: {attempts: 5, backoff: 100ms}, "+at(instant)))
	began := time.Now()
	s.ends(slotID("work", instant), "succeeded")
	ledger, err := s.js.Stream(t.Context(), "KV_cronce_ledger")
	if err != nil {
		t.Fatal(err)
	}
	attempts := len(s.touched())
	w.measured(map[string]float64{
		`cronce_slot_attempts_total{queue="default"}`: float64(attempts), `cronce_slot_retries_total{job="work"}`: float64(attempts - 1),
		`cronce_slot_run_seconds_count{queue="default"}`:           float64(attempts),
		`cronce_slot_outcomes_total{job="work",state="succeeded"}`: 1,
		`cronce_ledger_request_seconds_count{request="write"}`:     float64(ledger.CachedInfo().State.LastSeq),
	})
	if got := w.metrics()[`cronce_slot_run_seconds_sum{queue="default"}`]; attempts != 3 || got < .9 || got > time.Since(began).Seconds() {
		t.Errorf("%d attempts ran for %v s", attempts, got)
	}
	version := strings.Fields(s.command(0, "--version").stdout())
	for name := range w.metrics() {
		if strings.HasPrefix(name, "cronce_build_info") && !strings.Contains(name, fmt.Sprintf("version=%q", version[1])) {
			t.Errorf("%s is of another version than %q", name, version)
		}
	}
}

// The bucket of nodes takes nothing for a while: each heartbeat that is sent then is
// a failure, and what trust is left is that of the last one that was stored.
func TestMetricsOfHeartbeatsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	s.jobs("", goodJob)
	sent := s.hear("$KV.cronce_nodes.>")
	w := s.worker("w1", s.path("jobs.yaml"))
	w.says("node is up")
	s.limit("KV_cronce_nodes", 1)
	const failures, trust = "cronce_node_heartbeat_failures_total", "cronce_node_trust_seconds"
	nodes := func() jetstream.StreamState {
		t.Helper()
		stream, err := s.js.Stream(t.Context(), "KV_cronce_nodes")
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State
	}
	eventually(t, "three heartbeats to fail", func() bool { return w.metrics()[failures] >= 3 })
	// A node trusts itself for 15 of the 20 s of its lease, from before it sent.
	left := 15 - time.Since(nodes().LastTime).Seconds()
	if got := w.metrics()[trust]; got > left+.05 {
		t.Errorf("it trusts itself for %v s more; by its last heartbeat that was stored it is %v at most", got, left)
	}
	s.limit("KV_cronce_nodes", -1)
	eventually(t, "trust", func() bool { return w.metrics()[trust] > 14 })
	eventually(t, "failures to be what was sent and not stored", func() bool {
		return w.metrics()[failures] == float64(sent.count(anyMessage))-float64(nodes().LastSeq)
	})
	w.measured(map[string]float64{"cronce_node_leases_lost_total": 0})
}

// A service is away, comes, goes and comes: the queue of its job is withheld just
// then, and the queue of another job never.
func TestMetricsOfAServiceThatIsNotReady(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	addr := natstest.FreeAddress(t)
	file := s.write("jobs.yaml", fmt.Sprintf(`version: 1
jobs:
  - {name: work, queue: http, schedule: "* * * * * *", overlap: allow, action: {http: {url: "http://%[1]s/work", ready: "http://%[1]s/ready"}}}
  - {name: other, schedule: "@yearly", action: {exec: [/bin/true]}}
`, addr))
	w := s.worker("w1", file)
	const withheld, other = `cronce_queue_withheld{queue="http"}`, `cronce_queue_withheld{queue="default"}`
	away := func() { t.Helper(); w.measured(map[string]float64{withheld: 1, other: 0}) }
	w.says("node is up")
	away()
	for range 2 {
		service := s.service(addr)
		w.measured(map[string]float64{withheld: 0, other: 0})
		s.works(1)
		service.kill()
		away()
	}
}

// A client reads nothing of what it asked for until the server cuts it off, and what
// the streams hold is what JetStream itself counts.
func TestMetricsOfTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.start("server", "server", "--listen", "127.0.0.1:0", "--store", s.path("store"), "--metrics-addr", "127.0.0.1:0", "-o", "json")
	eventually(t, "the server's address", func() bool { return strings.Contains(p.stdout(), "}") })
	s.url = readJSON[struct{ URL string }](t, []byte(p.stdout())).URL
	s.connect()
	p.measured(map[string]float64{"cronce_server_connections": 1, "cronce_server_slow_consumers_total": 0, "cronce_server_messages": 0, "cronce_server_store_bytes": 0})
	if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	for range 7 {
		if _, err := s.js.Publish(t.Context(), "s", make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	account, err := s.js.AccountInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.measured(map[string]float64{"cronce_server_messages": 7, "cronce_server_store_bytes": float64(account.Store)})

	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	deaf, err := net.Dial("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	if _, err := fmt.Fprint(deaf, "CONNECT {\"verbose\":false}\r\nSUB loud 1\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	p.measured(map[string]float64{"cronce_server_connections": 2})
	eventually(t, "the server to cut off a client that does not read", func() bool {
		for range 16 {
			if err := s.nc.Publish("loud", make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.nc.FlushTimeout(natstest.Patience); err != nil {
			t.Fatal(err)
		}
		return p.metrics()["cronce_server_slow_consumers_total"] == 1
	})
	// What is being written to it is given up ten seconds later.
	eventually(t, "the client to be gone", func() bool { return p.metrics()["cronce_server_connections"] == 1 })
	p.is(http.StatusOK, "/readyz", "[+]JetStream ok")
}
