//go:build long && unix

package integration

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// A node runs only one slot, which fails twice. Its metrics agree with the action's file on the number of
// attempts, with the clock on their time, and with the stream on the writes of the ledger.
func TestMetricsCountAttemptsAndRetries(t *testing.T) {
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
	writing := w.metrics()[`cronce_ledger_request_seconds_sum{request="write"}`]
	if total := time.Since(began).Seconds(); writing <= 0 || writing > total {
		t.Errorf("writing took %v s of %v s", writing, total)
	}
	if got := w.metrics()[`cronce_slot_run_seconds_sum{queue="default"}`]; attempts != 3 || got < .9 || got > time.Since(began).Seconds() {
		t.Errorf("%d attempts ran for %v s", attempts, got)
	}
	version := fmt.Sprintf("version=%q", strings.Fields(s.command(0, "--version").stdout())[1])
	builds := slices.DeleteFunc(slices.Collect(maps.Keys(w.metrics())), func(name string) bool { return !strings.HasPrefix(name, "cronce_build_info{") })
	if len(builds) != 1 || !strings.Contains(builds[0], version) {
		t.Errorf("the builds are %q, want one with %s", builds, version)
	}
}

// The bucket of nodes refuses all writes for a while. Each heartbeat of that time is a failure, and the node
// trusts itself only for as long as its last stored heartbeat allows.
func TestMetricsCountRefusedHeartbeatsAndShowTheTrustThatIsLeft(t *testing.T) {
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
	// A node trusts itself for 15 of the 20 s of its lease, counted from before it sent the heartbeat.
	left := 15 - time.Since(nodes().LastTime).Seconds()
	if got := w.metrics()[trust]; got > left+.05 {
		t.Errorf("the node trusts itself for %v s more, and its last stored heartbeat allows at most %v s", got, left)
	}
	s.limit("KV_cronce_nodes", -1)
	eventually(t, "a heartbeat that renews the trust", func() bool { return w.metrics()[trust] > 14 })
	eventually(t, "a failure for each heartbeat that was sent and not stored", func() bool {
		return w.metrics()[failures] == float64(sent.count(anyMessage))-float64(nodes().LastSeq)
	})
	w.measured(map[string]float64{"cronce_node_leases_lost_total": 0})
}

// The service of a job is away, comes, and goes, twice. The queue of the job is withheld whenever the service is
// away, and the queue of another job never.
func TestMetricsShowThatAQueueIsWithheldWhileItsServiceIsNotReady(t *testing.T) {
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

// The metrics count the messages of streams as JetStream does, and a client that the server cuts off because it
// does not read.
func TestMetricsOfTheServerAgreeWithJetStream(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startServer("127.0.0.1:0", "--metrics-addr", "127.0.0.1:0")
	s.connect()
	p := s.server
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
	// The server gives up its pending write to the client after ten seconds.
	eventually(t, "the server to close the connection", func() bool { return p.metrics()["cronce_server_connections"] == 1 })
	p.is(http.StatusOK, "/readyz", "[+]JetStream ok")
}
