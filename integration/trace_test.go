//go:build long && unix

package integration

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// span is a span that a collector received.
type span struct {
	Name, ID, Parent, Trace, Slot string
	Failed                        bool
	Node                          string
}

// spans is an OpenTelemetry collector, a program of the lab. It must not complain.
type spans struct {
	*process
	began int // how long its first line is, the address
}

func newCollector(t *testing.T) (c *spans, url string) {
	t.Helper()
	// Its standard input is open until the test ends.
	stdin, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c = &spans{process: startReading(t, "collector", os.Environ(), stdin, program(t, traceCollector))}
	t.Cleanup(func() {
		_ = open.Close()
		if code := c.exit(); code != 0 || c.stderr() != "" {
			t.Errorf("the collector ends with status %d, and says:\n%s", code, c.stderr())
		}
	})
	eventually(t, "the collector's address", func() bool { return strings.Contains(c.stdout(), "\n") })
	url, _, _ = strings.Cut(c.stdout(), "\n")
	c.began = len(url) + 1
	return c, url
}

// of returns the spans of one slot, by name.
func (c *spans) of(slot string) map[string][]span {
	found := map[string][]span{}
	for dec := json.NewDecoder(strings.NewReader(c.stdout()[c.began:])); ; {
		var s span
		if err := dec.Decode(&s); err != nil { // at the end, or in a line that is being written
			return found
		}
		if s.Slot == slot {
			found[s.Name] = append(found[s.Name], s)
		}
	}
}

// One process publishes the slots, another one runs them, and the actions pass the trace on to an HTTP service, a NATS
// service and a program. All spans of a slot are in one trace, whose ID follows from the slot's ID.
func TestTraceOfASlotIsOneAcrossProcesses(t *testing.T) {
	t.Parallel()
	c, url := newCollector(t)
	s := newServedSite(t)
	s.environment = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, "OTEL_BSP_SCHEDULE_DELAY=100", "TRACEPARENT=00-of-the-parent"}
	handed := make(chan string, 100) // each value is an action and the traceparent that it got
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handed <- "http " + r.Header.Get("traceparent")
		if r.Header.Get("Cronce-Attempt") == "1" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer service.Close()
	_, err := s.nc.Subscribe("svc.traced", func(m *nats.Msg) {
		handed <- "nats " + m.Header.Get("traceparent")
		_ = m.Respond(nil)
	})
	if err != nil || s.nc.Flush() != nil {
		t.Fatal(err)
	}
	instant := soon()
	file := s.write("jobs.yaml", fmt.Sprintf(`version: 1
jobs:
  - {name: http, %[1]s, retry: {backoff: 100ms}, action: {http: {url: %[2]q}}}
  - {name: nats, %[1]s, action: {nats: {subject: svc.traced}}}
  - {name: exec, %[1]s, action: {exec: [/bin/sh, -c, 'echo "exec $TRACEPARENT" >%[3]s']}}
`, at(instant), service.URL, s.path("touched")))
	worker := s.worker("worker", file, "--no-produce")
	worker.says("exporting traces")
	producer := s.worker("producer", file, "--no-work")
	for _, name := range []string{"http", "nats", "exec"} {
		s.ends(slotID(name, instant), "succeeded")
	}
	got := map[string][]string{}
	for range 3 {
		action, parent, _ := strings.Cut(<-handed, " ")
		got[action] = append(got[action], parent)
	}
	got["exec"] = []string{strings.TrimPrefix(s.touched()[0], "exec ")}
	term(worker) // at their ends, both export the remaining spans
	term(producer)
	for name, parents := range got {
		attempts := 1
		if name == "http" {
			attempts = 2
		}
		checkTrace(t, c, job.NewSlot(name, instant), attempts, parents)
	}
}

// checkTrace checks the spans of a slot, and the traceparents that its attempts passed on.
func checkTrace(t *testing.T, c *spans, slot job.Slot, attempts int, parents []string) {
	t.Helper()
	want, found := slot.TraceID("cronce"), c.of(slot.ID())
	published := found["publish "+slot.Job]
	if len(published) != 1 || published[0].Parent != "" || !strings.HasPrefix(published[0].Node, "producer-") {
		t.Fatalf("%s: published in %+v", slot, published)
	}
	if got := published[0].Trace; got != hex.EncodeToString(want[:]) {
		t.Errorf("%s: trace %s, want %x", slot, got, want)
	}
	for _, step := range []string{"claim", "run", "complete"} {
		steps := found[step+" "+slot.Job]
		if len(steps) != attempts {
			t.Errorf("%s: %d spans of %s, want %d", slot, len(steps), step, attempts)
		}
		for i, one := range steps {
			if one.Trace != published[0].Trace || one.Parent != published[0].ID || !strings.HasPrefix(one.Node, "worker-") {
				t.Errorf("%s: %+v is no child of %+v", slot, one, published[0])
			}
			if failed := step == "run" && i < attempts-1; one.Failed != failed {
				t.Errorf("%s: %s of attempt %d failed is %v", slot, step, i+1, one.Failed)
			}
		}
	}
	for i, run := range found["run "+slot.Job] {
		if want := "00-" + run.Trace + "-" + run.ID + "-01"; i >= len(parents) || parents[i] != want {
			t.Errorf("%s: the attempts passed on %q, want %s from attempt %d", slot, parents, want, i+1)
		}
	}
}

func TestTraceIsNotMadeWithoutACollector(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	instant := soon()
	s.worker("w1", s.jobs(`echo "exec $TRACEPARENT" >>touched`, "name: work, "+at(instant)))
	messages, err := s.nc.SubscribeSync("cronce.slot.>")
	if err != nil || s.nc.Flush() != nil {
		t.Fatal(err)
	}
	m, err := messages.NextMsg(natstest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	if h := m.Header.Values("traceparent"); len(h) > 0 {
		t.Errorf("traceparent %q", h)
	}
	s.ends(slotID("work", instant), "succeeded")
	if lines := s.touched(); len(lines) != 1 || lines[0] != "exec " {
		t.Errorf("the action wrote %q, want no TRACEPARENT", lines)
	}
}

// A node refuses to start with an exporter that it does not have.
func TestCollectorThatIsAwayHoldsNoSlotUpAndAWrongOneIsRefused(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	s.environment = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + natstest.FreeAddress(t), "OTEL_BSP_SCHEDULE_DELAY=100"}
	w := s.worker("w1", s.jobs(tick, `name: tick, schedule: "* * * * * *"`))
	eventually(t, "slots to run", func() bool { return count(s.touched(), "end ") >= 2 })
	w.says("traces not exported; slots are not affected")
	term(w)
	s.environment = []string{"OTEL_TRACES_EXPORTER=jaeger"}
	refusal{status: 2, says: []string{"OTEL_TRACES_EXPORTER", `"jaeger"`, "otlp"}}.check(t, s.worker("w2", s.jobs("", goodJob)))
	s.environment = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}
	refusal{status: 2, says: []string{"OTEL_EXPORTER_OTLP_PROTOCOL", `"grpc"`, "http/protobuf", "4318"}}.check(t, s.worker("w3", s.jobs("", goodJob)))
}

// A collector refuses each request, and answers with the request. The exporter quotes settings that it does not
// understand. The log has no secret of either, and the exporter writes nothing to stderr beside the log.
func TestSecretsOfACollectorAreNotLogged(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintln(w, r.RequestURI, r.Header)
	}))
	t.Cleanup(refusing.Close)
	s.environment = []string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + strings.Replace(refusing.URL, "//", "//ada:word-4711@", 1) + "/v1/traces?key=query-4711",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://ada:word%zz4711@host", "OTEL_BSP_SCHEDULE_DELAY=100",
		"OTEL_EXPORTER_OTLP_HEADERS=api-key=header%204711,Authorization: Bearer token-4711,bad=%zz4711",
	}
	w := s.worker("w1", s.jobs("", `name: tick, schedule: "* * * * * *"`), "--log-format", "json")
	w.says("traces not exported; slots are not affected")
	w.says("cannot read all OpenTelemetry settings in the environment")
	term(w)
	for line := range strings.Lines(w.stderr()) {
		if strings.Contains(line, "4711") || !json.Valid([]byte(line)) {
			t.Errorf("logged: %s", line)
		}
	}
}
