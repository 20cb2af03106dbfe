//go:build long && unix

package integration

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestMetricsCountTheTakeoverFromAKilledWorker(t *testing.T) {
	t.Parallel()
	b := newMeasuredSite(t).beginSlot("")
	b.owner.measured(map[string]float64{
		`cronce_slots_running{queue="default"}`: 1, `cronce_slot_attempts_total{queue="default"}`: 1,
		`cronce_slot_lateness_seconds_count{queue="default"}`: 1, `cronce_slot_run_seconds_count{queue="default"}`: 0,
		`cronce_node_owed_slots`: 1,
	})
	killed := time.Now()
	b.owner.kill()
	b.takenOver()
	b.other.measured(map[string]float64{
		`cronce_slot_takeovers_total`: 1, `cronce_node_fences_total`: 1, `cronce_slots_running{queue="default"}`: 0,
		`cronce_slot_attempts_total{queue="default"}`: 1, `cronce_slot_run_seconds_count{queue="default"}`: 1,
		// A second attempt is late by nature.
		`cronce_slot_lateness_seconds_count{queue="default"}`:      0,
		`cronce_slot_outcomes_total{job="stay",state="succeeded"}`: 1, `cronce_slot_outcomes_total{job="stay",state="failed"}`: 0,
		`cronce_slot_refused_completions_total`: 0, `cronce_node_leases_lost_total`: 0, `cronce_ledger_errors_total{request="write"}`: 0,
		`cronce_node_owed_slots`: 0,
	})
	last := b.other.metrics()[`cronce_job_last_success_timestamp_seconds{job="stay"}`]
	if at := time.UnixMilli(int64(last * 1000)); at.Before(killed.Truncate(time.Millisecond)) || at.After(time.Now()) {
		t.Errorf("the last success was at %v; the first owner was killed at %v", at, killed)
	}
}

func TestMetricsCountWhatAFrozenWorkerLost(t *testing.T) {
	t.Parallel()
	b := newMeasuredSite(t).beginSlot("")
	b.owner.signal(syscall.SIGSTOP)
	b.takenOver()
	b.owner.signal(syscall.SIGCONT)
	eventually(t, "the worker to come back under a new name", func() bool {
		n := b.node(b.owner.name)
		return n.State == "alive" && n.Node != b.incarnation
	})
	b.owner.measured(map[string]float64{
		`cronce_slot_refused_completions_total`: 1, `cronce_node_leases_lost_total`: 1, `cronce_slot_takeovers_total`: 0,
		`cronce_slot_outcomes_total{job="stay",state="succeeded"}`: 0, `cronce_slots_running{queue="default"}`: 0,
		`cronce_slot_attempts_total{queue="default"}`: 1, `cronce_slot_run_seconds_count{queue="default"}`: 1,
	})
	b.other.measured(map[string]float64{`cronce_slot_takeovers_total`: 1, `cronce_node_fences_total`: 1})
}

// The test publishes copies of future slots and, unlike a producer, does not announce that. So each copy is in
// the stream when the node publishes its own.
func TestMetricsCountFoldedCopies(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	w := s.worker("w1", s.jobs(tick, `name: tick, schedule: "* * * * * *", overlap: allow`))
	const copies = 3
	eventually(t, "a slot", func() bool { return len(s.touched()) > 0 })
	before := w.metrics()
	first := soon()
	for i := range copies {
		id := slotID("tick", first.Add(time.Duration(i)*time.Second))
		m := &nats.Msg{Subject: "cronce.slot.default.tick", Header: nats.Header{"Nats-Msg-Id": {id}, "Cronce-Slot": {id}}}
		if _, err := s.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	s.ends(slotID("tick", first.Add((copies+1)*time.Second)), "succeeded")
	after := w.metrics()
	if n := after["cronce_producer_folded_total"] - before["cronce_producer_folded_total"]; n != copies {
		t.Errorf("%v copies folded, want %d", n, copies)
	}
	if n := after["cronce_producer_published_total"] - before["cronce_producer_published_total"]; n < copies+2 {
		t.Errorf("%v published, want %d or more", n, copies+2)
	}
	if starts := count(s.touched(), "start "+slotID("tick", first)); starts != 1 {
		t.Errorf("the first of them was started %d times", starts)
	}
}

func TestMetricsShowAWrongClock(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	w := s.worker("w1", s.jobs(tick, `name: tick, schedule: "* * * * * *"`), "--clock-offset", "90s")
	eventually(t, "a slot", func() bool { return len(s.touched()) > 0 })
	got := w.metrics()
	offset, err := got["cronce_clock_offset_seconds"], got["cronce_clock_error_seconds"]
	if math.Abs(offset+90) > err+.001 || err <= 0 || err > 20 {
		t.Errorf("the clock's offset is %v s, with an error of at most %v s; it was set to -90 s", offset, err)
	}
	// By its own clock, each slot would start 90 s late.
	if late := got[`cronce_slot_lateness_seconds_sum{queue="default"}`] / got[`cronce_slot_lateness_seconds_count{queue="default"}`]; !(late < 45) {
		t.Errorf("slots were %v s late", late)
	}
}

func TestMetricsCountWritesThatAFullLedgerRefuses(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	id, workers := s.running()
	owner := workers[0]
	if strings.HasPrefix(s.record(id).Node, "w2-") {
		owner = workers[1]
	}
	s.limitLedger(1)
	s.write("goon", "")
	const errors = `cronce_ledger_errors_total{request="write"}`
	eventually(t, "three errors", func() bool { return owner.metrics()[errors] >= 3 })
	owner.measured(map[string]float64{`cronce_slot_outcomes_total{job="work",state="succeeded"}`: 0})
	s.limitLedger(-1)
	s.ends(id, "succeeded")
	owner.says("outcome recorded after failures")
	said := regexp.MustCompile(`outcome recorded after failures.* failures=(\d+)`).FindStringSubmatch(owner.stderr())
	if said == nil || strings.Count(owner.stderr(), "outcome cannot be recorded") != 1 {
		t.Fatalf("the log does not have the first failure once and the number of all:\n%s", owner.stderr())
	}
	failures, _ := strconv.ParseFloat(said[1], 64)
	owner.measured(map[string]float64{errors: failures, `cronce_slot_outcomes_total{job="work",state="succeeded"}`: 1})
}

// The broker is suspended while some slots fall due. They start late, and the metric counts as many late slots
// as the ledger has. No other test runs meanwhile, because this one compares times with one second.
func TestMetricsShowLateSlotsAfterAPauseOfTheBroker(t *testing.T) {
	s := newMeasuredSite(t)
	w := s.worker("w1", s.jobs("", `name: tick, schedule: "* * * * * *", overlap: allow`))
	w.says("slot succeeded")
	s.server.signal(syscall.SIGSTOP)
	paused := time.Now()
	eventually(t, "four seconds", func() bool { return time.Since(paused) > 4*time.Second })
	s.server.signal(syscall.SIGCONT)
	over := time.Now()
	s.ends(slotID("tick", over.Add(2*time.Second).Truncate(time.Second)), "succeeded")
	late, all := 0, 0
	rows, got := s.slots(), w.metrics()
	for _, r := range rows {
		if r.State == "succeeded" {
			all++
			if r.Started.Sub(r.Due) > time.Second {
				late++
			}
		}
	}
	counted := got[`cronce_slot_lateness_seconds_count{queue="default"}`]
	above := counted - got[`cronce_slot_lateness_seconds_bucket{queue="default",le="1"}`]
	if late < 2 || math.Abs(above-float64(late)) > 1 || math.Abs(counted-float64(all)) > 2 {
		t.Errorf("%v of %v slots were late by more than a second, and by the ledger %d of %d", above, counted, late, all)
	}
}

func TestMetricsShowWhatWaitsInAQueueAndForHowLong(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	instant := soon()
	w := s.worker("w1", s.jobs(waits, "name: work, "+at(instant), `name: tick, schedule: "* * * * * *", overlap: queue`), "--concurrency", "1")
	eventually(t, "a slot that runs", func() bool { return len(s.touched()) == 1 })
	var got map[string]float64
	eventually(t, "a slot that waits for three seconds", func() bool {
		got = w.metrics()
		return got[`cronce_queue_age_seconds{queue="default"}`] > 3
	})
	waiting := s.waiting("default")
	if n := got[`cronce_queue_waiting_slots{queue="default"}`]; n < 2 || n > float64(waiting) {
		t.Errorf("%v slots wait, and the stream has %d", n, waiting)
	}
	queue, err := s.js.Consumer(t.Context(), "cronce_slots", "default")
	if err != nil {
		t.Fatal(err)
	}
	if n := got[`cronce_queue_taken_slots{queue="default"}`]; n < 1 || n != float64(queue.CachedInfo().NumAckPending) {
		t.Errorf("%v slots were delivered, and the broker says %d", n, queue.CachedInfo().NumAckPending)
	}
	if lag := got["cronce_watermark_lag_seconds"]; lag > 20 {
		t.Errorf("the watermark lags by %v s although all is published", lag)
	}
	s.write("goon", "")
	eventually(t, "no slot that waits", func() bool {
		return w.metrics()[`cronce_queue_age_seconds{queue="default"}`] < 2
	})
}

func TestMetricsShowParkedSlots(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	w := s.worker("w1", s.jobs(waits, `name: tick, schedule: "* * * * * *", overlap: queue`))
	eventually(t, "three slots that wait for one", func() bool {
		got := w.metrics()
		return got[`cronce_slots_running{queue="default"}`] == 1 && got[`cronce_slots_parked{queue="default"}`] >= 3
	})
	s.write("goon", "")
	eventually(t, "no parked slot", func() bool { return w.metrics()[`cronce_slots_parked{queue="default"}`] == 0 })
}

// While the broker is away, a node is not ready, but live: a restart of the node would not bring the broker
// back.
func TestNodeWithoutABrokerIsLiveButNotReady(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	w := s.worker("w1", s.jobs(tick, `name: tick, schedule: "* * * * * *"`), "--lease", lease.String())
	w.is(http.StatusOK, "/readyz", "[+]heartbeat ok")
	w.is(http.StatusOK, "/healthz", "[+]live ok")
	w.measured(map[string]float64{"cronce_broker_connected": 1, "cronce_broker_reconnects_total": 0, "cronce_node_leases_lost_total": 0})
	s.server.kill()
	w.is(http.StatusServiceUnavailable, "/readyz", "[-]broker failed: not connected to NATS")
	w.is(http.StatusServiceUnavailable, "/readyz", "[-]heartbeat failed")
	w.is(http.StatusOK, "/healthz", "[+]live ok")
	away := w.metrics()
	if away["cronce_broker_connected"] != 0 || away["cronce_node_trust_seconds"] > 0 {
		t.Errorf("connected %v, trust %v", away["cronce_broker_connected"], away["cronce_node_trust_seconds"])
	}
	s.restartServer(func(*process) {})
	w.is(http.StatusOK, "/readyz", "[+]broker ok")
	w.measured(map[string]float64{"cronce_broker_connected": 1})
	if got := w.metrics(); got["cronce_broker_reconnects_total"] != 1 || got["cronce_node_leases_lost_total"] < 1 {
		t.Errorf("reconnects %v, leases lost %v", got["cronce_broker_reconnects_total"], got["cronce_node_leases_lost_total"])
	}
}

// is waits until the page has this status and contains this text.
func (p *process) is(want int, page, says string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%s to be %d and say %q", page, want, says), func() bool {
		status, body := p.ask(page)
		return status == want && strings.Contains(body, says)
	})
}

func TestDisabledProcessIsReadyAndLive(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	file := s.jobs(tick, `name: tick, schedule: "* * * * * *"`)
	p := start(t, "idle", append(s.env(), "CRONCE_DISABLED=1"), nil, program(t, cronce), "run", "-f", file, "--metrics-addr", "127.0.0.1:0")
	p.is(http.StatusOK, "/readyz", "[+]disabled ok")
	p.is(http.StatusOK, "/healthz", "[+]live ok")
}

func TestServerServesHealthAndMetrics(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startServer("127.0.0.1:0", "--metrics-addr", "127.0.0.1:0")
	s.server.is(http.StatusOK, "/readyz", "[+]JetStream ok")
	s.server.is(http.StatusOK, "/healthz", "[+]live ok")
	// The number of connections is not checked: a client of another test may look for its server on this port.
	if got, there := s.server.metrics()["cronce_server_messages"]; !there || got != 0 {
		t.Errorf("%v messages, want 0", got)
	}
}

func TestMetricsAddressThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken, file := l.Addr().String(), s.jobs("", goodJob)
	refusal{status: 1, says: []string{"--metrics-addr", taken, "address already in use"}}.check(t, s.worker("w1", file, "--metrics-addr", taken))
	refusal{status: 2, says: []string{`"9464"`, "HOST:PORT"}}.check(t, s.worker("w2", file, "--metrics-addr", "9464"))
}
