package alert_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/text/alertbody"
	"github.com/cronce-io/cronce/job"
)

// service is an HTTP server that keeps the requests. It sends the answers one after the other, and
// then 202.
type service struct {
	*httptest.Server
	mu       sync.Mutex
	answers  []func(http.ResponseWriter)
	requests []request
}

type request struct {
	method, path, body string
	header             http.Header
	at                 time.Time
}

func (r request) key() string { return r.header.Get("Idempotency-Key") }

// status answers with a status.
func status(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(code) }
}

func newService(t *testing.T, answers ...func(http.ResponseWriter)) *service {
	s := &service{answers: answers}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests = append(s.requests, request{r.Method, r.URL.Path, string(body), r.Header, time.Now()})
		if len(s.answers) > 0 {
			s.answers[0](w)
			s.answers = s.answers[1:]
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) all() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (f *fixture) consumer() (*jetstream.ConsumerInfo, error) {
	js, err := jetstream.New(f.nc)
	if err != nil {
		return nil, err
	}
	c, err := js.Consumer(f.Context(), "cronce_events", layout.AlertConsumer)
	if err != nil {
		return nil, err
	}
	return c.Info(f.Context())
}

// isDrained reports whether all alerts are acked.
func (f *fixture) isDrained() bool {
	c, err := f.consumer()
	return err == nil && c.NumAckPending == 0 && c.NumPending == 0 && c.Delivered.Consumer > 0
}

// set defines a job.
func (f *fixture) set(j job.Job) {
	f.Helper()
	if j.Schedule == "" {
		j.Schedule = "@daily"
	}
	if err := j.Validate(); err != nil {
		f.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[j.Name] = j
}

// publish publishes an alert, as a worker does.
func (f *fixture) publish(r job.Record, revision uint64, kind job.State) job.Event {
	f.Helper()
	e := exchange.NewAlert(r, revision, kind)
	e.Node = "w1"
	if err := f.store.Alert(f.Context(), e, exchange.AlertID(r, revision, kind)); err != nil {
		f.Fatal(err)
	}
	return e
}

func ended(name string, state job.State) job.Record {
	return job.Record{
		Slot: job.NewSlot(name, time.Unix(1_800_000_000, 0)), State: state, Attempt: 3, Finished: time.Now(),
		Error: "@everyone <!channel> \"quoted\"\n\u202emore", Output: strings.Repeat("noise\n", 1000) + "panic: the end",
	}
}

func TestEveryFormatIsDelivered(t *testing.T) {
	f := newFixture(t)
	s := newService(t)
	f.env["CRONCE_ALERT_KEY"] = strings.Repeat("k", 32)
	for _, format := range job.AlertFormats() {
		a := &job.Alert{HTTP: &job.AlertHTTP{URL: s.URL + "/" + format}, Format: format}
		if format == "pagerduty" {
			a.KeyEnv = "CRONCE_ALERT_KEY"
		}
		f.set(job.Job{Name: format, OnFailure: a})
		f.publish(ended(format, job.Failed), 7, job.Failed)
	}
	f.run()
	f.eventually("all of them", func() bool { return len(s.all()) == len(job.AlertFormats()) })
	for _, r := range s.all() {
		name := strings.TrimPrefix(r.path, "/")
		if r.path == "/" { // ntfy takes JSON at the root
			name = "ntfy"
		}
		want, err := alertbody.Service(name, alertbody.Data{}, "ntfy")
		if err != nil {
			t.Errorf("a request to %s", r.path)
			continue
		}
		if r.method != "POST" || r.header.Get("Content-Type") != "application/json" || r.header.Get("Cronce-Alert") != "failed" ||
			r.key() != job.NewSlot(name, time.Unix(1_800_000_000, 0)).ID() {
			t.Errorf("%s: %s with %v", name, r.method, r.header)
		}
		if !sameMembers(t, r.body, string(want)) || !strings.Contains(r.body, "panic: the end") || strings.Contains(r.body, "\u202e") {
			t.Errorf("%s: it got %s", name, r.body)
		}
	}
}

// sameMembers reports whether two JSON objects have the same members.
func sameMembers(t *testing.T, a, b string) bool {
	t.Helper()
	names := func(s string) (all []string) {
		var o map[string]json.RawMessage
		if err := json.Unmarshal([]byte(s), &o); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		for name := range o {
			all = append(all, name)
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(names(a), names(b))
}

func TestATemplateWritesTheBody(t *testing.T) {
	f := newFixture(t)
	s := newService(t)
	f.env["CRONCE_ALERT_KEY"] = "s3cret"
	f.set(job.Job{Name: "json", OnFailure: &job.Alert{HTTP: &job.AlertHTTP{URL: s.URL + "/json"}, Template: `{"text": {{json .Title}}, "error": "{{js .Error}}", "key": {{json .Key}}}`, KeyEnv: "CRONCE_ALERT_KEY"}})
	f.set(job.Job{Name: "text", OnFailure: &job.Alert{HTTP: &job.AlertHTTP{URL: s.URL + "/text"}, Template: "{{.Title}} at {{.Instant.Format \"15:04\"}}: {{tail 7 .Output}}"}})
	f.publish(ended("json", job.Failed), 7, job.Failed)
	f.publish(ended("text", job.Failed), 8, job.Failed)
	f.run()
	f.eventually("both", func() bool { return len(s.all()) == 2 })
	for _, r := range s.all() {
		var got struct{ Text, Error, Key string }
		switch r.path {
		case "/json":
			if err := json.Unmarshal([]byte(r.body), &got); err != nil || got.Text != "json failed" || got.Key != "s3cret" ||
				got.Error != "@everyone <!channel> \"quoted\"\nmore" || r.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s, %v, %v", r.body, err, r.header)
			}
		case "/text":
			if !strings.HasPrefix(r.body, "text failed at 08:00: …") || !strings.HasSuffix(r.body, "end") || !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain") {
				t.Errorf("%q, %v", r.body, r.header)
			}
		}
	}
	if strings.Contains(f.logged(), "s3cret") {
		t.Errorf("the key is in the log: %s", f.logged())
	}
}

func TestATopicThatIsASecretIsInNoLog(t *testing.T) {
	f := newFixture(t)
	s := newService(t, status(http.StatusInternalServerError))
	f.env["CRONCE_ALERT_URL"] = s.URL + "/T0PSECRET"
	f.set(job.Job{Name: "report", OnFailure: &job.Alert{HTTP: &job.AlertHTTP{URLEnv: "CRONCE_ALERT_URL"}, Format: "ntfy"}})
	f.publish(ended("report", job.Failed), 7, job.Failed)
	f.run()
	f.eventually("the second try", func() bool { return len(s.all()) > 1 })
	if r := s.all()[1]; r.path != "/" || !strings.Contains(r.body, `"topic":"T0PSECRET"`) {
		t.Errorf("it got %+v", r)
	}
	if l := f.logged(); strings.Contains(l, "T0PSECRET") || strings.Contains(l, s.URL) || !strings.Contains(l, "$CRONCE_ALERT_URL") {
		t.Errorf("logged: %s", l)
	}
}

func TestAnAlertIsNotRetriedBeforeRetryAfter(t *testing.T) {
	f := newFixture(t)
	s := newService(t, func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	f.set(job.Job{Name: "report", OnFailure: &job.Alert{HTTP: &job.AlertHTTP{URL: s.URL}, Format: "discord"}})
	f.publish(ended("report", job.Failed), 7, job.Failed)
	f.run()
	f.eventually("the second try", func() bool { return len(s.all()) == 2 })
	if all := s.all(); all[1].at.Sub(all[0].at) < 5*time.Second || all[0].key() != all[1].key() {
		t.Errorf("retried after %v, want 5s or more; the keys are %q and %q", all[1].at.Sub(all[0].at), all[0].key(), all[1].key())
	}
}

func TestAlertsOfOneSlotHaveDifferentKeys(t *testing.T) {
	f := newFixture(t)
	s := newService(t)
	a := &job.Alert{HTTP: &job.AlertHTTP{URL: s.URL}}
	f.set(job.Job{Name: "report", OnFailure: a, OnSuccess: a, OnRecovered: a, OnLate: a, LateAfter: time.Minute})
	r := ended("report", job.Failed)
	kinds := []job.State{job.Failed, job.Succeeded, job.AlertRecovered, job.AlertLate}
	for _, kind := range kinds {
		f.publish(r, 7, kind)
	}
	f.run()
	f.eventually("all of them", func() bool { return len(s.all()) == len(kinds) })
	for _, got := range s.all() {
		kind := got.header.Get("Cronce-Alert")
		want := r.Slot.ID()
		if kind != "failed" {
			want += "/" + kind
		}
		if got.key() != want {
			t.Errorf("%s: key %q, want %q", kind, got.key(), want)
		}
	}
}

func TestAnOldHeartbeatIsNotCalled(t *testing.T) {
	f := newFixture(t)
	s := newService(t, status(http.StatusBadGateway))
	f.env["CRONCE_ALERT_HEARTBEAT"] = s.URL + "/T0PSECRET"
	f.set(job.Job{Name: "report", Heartbeat: &job.AlertHTTP{URLEnv: "CRONCE_ALERT_HEARTBEAT"}})
	old := ended("report", job.Succeeded)
	old.Slot, old.Finished = job.NewSlot("report", time.Unix(1_700_000_000, 0)), time.Now().Add(-job.MaxHeartbeatAge-time.Second)
	f.publish(old, 6, job.AlertHeartbeat)
	f.publish(ended("report", job.Succeeded), 7, job.AlertHeartbeat)
	f.run()
	f.eventually("both tries, and an empty feed", func() bool { return f.isDrained() && len(s.all()) == 2 })
	for _, r := range s.all() {
		if r.method != "GET" || r.body != "" || r.path != "/T0PSECRET" || r.header.Get("Cronce-Slot-Id") != ended("report", job.Succeeded).Slot.ID() {
			t.Errorf("it got %+v", r)
		}
	}
	if l := f.logged(); strings.Contains(l, "T0PSECRET") || !strings.Contains(l, "came too late") {
		t.Errorf("logged: %s", l)
	}
}

// The alert about the failure is delivered after that about the recovery.
func TestNoIncidentIsOpenedForAFailureThatIsOver(t *testing.T) {
	f := newFixture(t)
	s := newService(t)
	f.env["CRONCE_ALERT_KEY"] = strings.Repeat("k", 32)
	a := &job.Alert{HTTP: &job.AlertHTTP{URL: s.URL}, Format: "pagerduty", KeyEnv: "CRONCE_ALERT_KEY"}
	f.set(job.Job{Name: "report", OnFailure: a, OnRecovered: a})
	r := ended("report", job.Failed)
	if _, err := f.store.AlertStates().Write(t.Context(), exchange.AlertState{Job: "report", ID: "report:@x", Revision: 9, Time: time.Now(), Nonce: "n"}, 0); err != nil {
		t.Fatal(err)
	}
	f.publish(r, 7, job.Failed)
	r.State = job.Succeeded
	f.publish(r, 9, job.AlertRecovered)
	r.State, r.Error = job.Failed, "failed again"
	f.publish(r, 11, job.Failed)
	f.run()
	f.eventually("an empty feed", func() bool { return f.isDrained() && len(s.all()) == 2 })
	var actions []string
	for _, r := range s.all() {
		var e struct {
			Action string `json:"event_action"`
			Key    string `json:"routing_key"`
		}
		if err := json.Unmarshal([]byte(r.body), &e); err != nil || e.Key != f.env["CRONCE_ALERT_KEY"] {
			t.Errorf("%s: %v", r.body, err)
		}
		if actions = append(actions, e.Action); e.Action == "trigger" && !strings.Contains(r.body, "failed again") {
			t.Errorf("an incident is opened for %s", r.body)
		}
	}
	slices.Sort(actions)
	if !slices.Equal(actions, []string{"resolve", "trigger"}) {
		t.Errorf("it got %q", actions)
	}
}

// The job's state is older than the ledger, whose revisions begin at 1 again.
func TestAnIncidentIsOpenedForAFailureAfterTheLedgerWasCreatedAgain(t *testing.T) {
	f := newFixture(t)
	s := newService(t)
	f.env["CRONCE_ALERT_KEY"] = strings.Repeat("k", 32)
	a := &job.Alert{HTTP: &job.AlertHTTP{URL: s.URL}, Format: "pagerduty", KeyEnv: "CRONCE_ALERT_KEY"}
	f.set(job.Job{Name: "report", OnFailure: a, OnRecovered: a})
	if _, err := f.store.AlertStates().Write(t.Context(), exchange.AlertState{Job: "report", ID: "report:@x", Revision: 900, Time: time.Now().Add(-time.Minute), Nonce: "n"}, 0); err != nil {
		t.Fatal(err)
	}
	f.publish(ended("report", job.Failed), 7, job.Failed)
	f.run()
	f.eventually("an empty feed", f.isDrained)
	if n := len(s.all()); n != 1 {
		t.Errorf("%d requests, want one that opens an incident", n)
	}
}

func TestAMessageThatIsTooLongForTheServerIsCut(t *testing.T) {
	f := newFixture(t, func(o *server.Options) { o.MaxPayload = 12 << 10 })
	sub, err := f.nc.SubscribeSync("alerts.jobs")
	if err != nil {
		t.Fatal(err)
	}
	f.set(job.Job{Name: "report", OnFailure: &job.Alert{NATS: &job.AlertNATS{Subject: "alerts.jobs"}, Template: strings.Repeat("{{.Output}}", 5) + strings.Repeat("{{.Error}}", 4)}})
	r := ended("report", job.Failed)
	r.Error = strings.Repeat("e", 3<<10)
	f.publish(r, 7, job.Failed)
	f.run()
	m, err := sub.NextMsg(natstest.Patience)
	if err != nil {
		t.Fatalf("%v: %s", err, f.logged())
	}
	if body := string(m.Data); len(body) > 10<<10 || !strings.HasPrefix(body, "eee") || m.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%d bytes, %.100s, %v", len(body), body, m.Header)
	}
}
