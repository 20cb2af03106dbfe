package alert_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/alert"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestMain(m *testing.M) {
	natstest.WaitMore(8)
	goleak.VerifyTestMain(m)
}

// fixture is a namespace with jobs, and one deliverer.
type fixture struct {
	*testing.T
	nc    *nats.Conn
	store *kv.Store
	env   map[string]string

	mu   sync.Mutex
	jobs map[string]job.Job
	log  strings.Builder
}

func newFixture(t *testing.T, edit ...func(*server.Options)) *fixture {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Run(t, edit...).ClientURL())
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	store := kvtest.Open(t, js, kv.Options{})
	return &fixture{T: t, nc: nc, store: store, env: map[string]string{}, jobs: map[string]job.Job{}}
}

func (f *fixture) Lookup(_ context.Context, name string, _ uint64) (plans.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j, ok := f.jobs[name]
	if !ok {
		return plans.Entry{}, job.ErrNotFound
	}
	return plans.Entry{Definition: plans.Definition{Job: j}}, nil
}

func (f *fixture) Alerting() bool { return true }

func (f *fixture) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(p)
}

func (f *fixture) logged() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.String()
}

// run starts a deliverer, which ends with the test.
func (f *fixture) run() {
	d := alert.New(alert.Config{
		Namespace: f.store.Namespace, Registry: f, Request: f.store.Request, Getenv: func(name string) string { return f.env[name] },
		Open:   func(ctx context.Context) (alert.Feed, error) { return f.store.Alerts(ctx) },
		Logger: slog.New(slog.NewTextHandler(f, nil)), Now: time.Now, MaxPayload: f.store.MaxPayload,
		Emit: func(e job.Event) {
			e.Node, e.Time = "n", time.Now().UTC()
			if err := f.store.Emit(e); err != nil {
				f.Error(err)
			}
		},
		State: func(ctx context.Context, name string) (exchange.AlertState, error) {
			state, _, err := f.store.AlertStates().Read(ctx, name)
			return state, err
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { d.Run(ctx) })
	f.Cleanup(func() { stop(); ended.Wait() })
}

// fail publishes the alert of a failed slot of the job twice, and returns the slot's ID.
func (f *fixture) fail(name string, n int) string {
	f.Helper()
	r := job.Record{Slot: job.NewSlot(name, time.Unix(int64(1_800_000_000+n), 0)), State: job.Failed, Attempt: 3, Error: "boom", Finished: time.Now()}
	for range 2 {
		f.publish(r, 7, r.State)
	}
	return r.Slot.ID()
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.Helper()
	natstest.Eventually(f, what, ok)
}

// alertTo makes a job ask for alerts about failures; to may be nil.
func (f *fixture) alertTo(name string, to *job.Alert) { f.set(job.Job{Name: name, OnFailure: to}) }

// webhook is the target of a webhook.
func webhook(url string) *job.Alert { return &job.Alert{HTTP: &job.AlertHTTP{URL: url}} }

func TestAWebhookIsCalledUntilItAcceptsTheAlert(t *testing.T) {
	f := newFixture(t)
	s := newService(t, status(503), status(404))
	f.env["CRONCE_ALERT_TOKEN"] = "word"
	f.alertTo("report", &job.Alert{HTTP: &job.AlertHTTP{URL: s.URL + "/alerts", Headers: []job.AlertHeader{{Name: "Authorization", Prefix: "Bearer ", Env: "CRONCE_ALERT_TOKEN"}}}})
	f.run()
	id := f.fail("report", 1)
	f.eventually("three tries", func() bool { return len(s.all()) == 3 })
	for _, r := range s.all() {
		var e job.Event
		if err := json.Unmarshal([]byte(r.body), &e); err != nil || e.ID != id || e.Alert != job.Failed || e.Error != "boom" ||
			e.Attempt != 3 || e.Fence != 7 || e.Job != "report" || e.Node != "w1" {
			t.Errorf("body %s, %v", r.body, err)
		}
		if r.key() != id || r.header.Get("Authorization") != "Bearer word" || r.header.Get("Cronce-Fence") != "7" {
			t.Errorf("headers %v", r.header)
		}
	}
	f.eventually("the ack", f.isDrained)
	if n := len(s.all()); n != 3 {
		t.Errorf("%d requests, want no more than 3", n)
	}
	if strings.Contains(f.logged(), "word") {
		t.Errorf("the secret is in the log: %s", f.logged())
	}
}

func TestAnAlertWaitsForANodeThatHasItsSecret(t *testing.T) {
	f := newFixture(t)
	s := newService(t)
	f.alertTo("report", &job.Alert{HTTP: &job.AlertHTTP{URLEnv: "CRONCE_ALERT_URL"}})
	f.run()
	id := f.fail("report", 1)
	f.eventually("a warning", func() bool { return strings.Contains(f.logged(), "CRONCE_ALERT_URL") })
	other := &fixture{T: f.T, nc: f.nc, store: f.store, jobs: f.jobs, env: map[string]string{"CRONCE_ALERT_URL": s.URL + "/T0PSECRET"}}
	other.run()
	f.eventually("the delivery", func() bool { return len(s.all()) > 0 })
	if got := s.all()[0].key(); got != id {
		t.Errorf("an alert about %s, want %s", got, id)
	}
}

func TestAURLThatIsASecretIsInNoLog(t *testing.T) {
	f := newFixture(t)
	s := newService(t, status(500))
	f.env["CRONCE_ALERT_URL"] = s.URL + "/T0PSECRET"
	f.alertTo("report", &job.Alert{HTTP: &job.AlertHTTP{URLEnv: "CRONCE_ALERT_URL"}})
	f.run()
	f.fail("report", 1)
	f.eventually("the second try", func() bool { return len(s.all()) > 1 })
	if l := f.logged(); strings.Contains(l, "T0PSECRET") || !strings.Contains(l, "$CRONCE_ALERT_URL") {
		t.Errorf("logged: %s", l)
	}
}

func TestAnAlertToASubjectIsRetriedUntilThereIsASubscriber(t *testing.T) {
	f := newFixture(t)
	f.alertTo("report", &job.Alert{NATS: &job.AlertNATS{Subject: "alerts.jobs"}})
	f.run()
	id := f.fail("report", 1)
	f.eventually("a warning", func() bool { return strings.Contains(f.logged(), "no subscriber") })
	sub, err := f.nc.SubscribeSync("alerts.jobs") // it never answers
	if err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(natstest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	var e job.Event
	if err := json.Unmarshal(m.Data, &e); err != nil || e.ID != id || m.Header.Get("Idempotency-Key") != id {
		t.Errorf("got %s with %v", m.Data, m.Header)
	}
	f.eventually("the ack", f.isDrained)
}

// Otherwise write access to the registry would be write access to the node's subjects.
func TestNoAlertIsPublishedToSubjectsOfTheServerOrTheNamespace(t *testing.T) {
	f := newFixture(t)
	sub, err := f.nc.SubscribeSync("cronce.slot.>")
	if err != nil {
		t.Fatal(err)
	}
	f.alertTo("report", &job.Alert{NATS: &job.AlertNATS{Subject: "cronce.slot.default.report"}})
	f.run()
	f.fail("report", 1)
	f.eventually("a warning", func() bool { return strings.Contains(f.logged(), "alerts must not go there") })
	if n, _, _ := sub.Pending(); n > 0 {
		t.Error("the alert was published")
	}
}

// Some events of the stream are no alerts, and some jobs ask for no alerts now.
func TestEventsThatAreNoWantedAlertsAreAcked(t *testing.T) {
	f := newFixture(t)
	s := newService(t)
	f.alertTo("report", webhook(s.URL))
	f.alertTo("payroll", webhook(s.URL))
	f.alertTo("quiet", nil)
	reopened := job.Event{V: codec.Version, Kind: job.EventAlert, ID: "report:2026-11-21T07:00:00Z", Job: "report", Reopened: true}
	if err := f.store.StoreEvent(t.Context(), reopened); err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{"no event", `{"v":1,"kind":"alert","job":"report","id":"other:2026-11-21T07:00:00Z","alert":"failed"}`, `{"v":1,"kind":"alert","job":"report","alert":"failed"}`,
		`{"v":1,"kind":"alert","job":"payroll","id":"payroll:2026-11-21T07:00:00Z","alert":"failed"}`} { // on the subject of another job
		if err := f.nc.Publish("cronce.event.alert.report", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	f.fail("quiet", 1)
	f.fail("gone", 1)
	id := f.fail("report", 1)
	f.run()
	f.eventually("an empty feed", f.isDrained)
	if got := s.all(); len(got) != 1 || got[0].key() != id {
		t.Errorf("got %+v, want only the alert about %s", got, id)
	}
}

func TestAlertsAreDeliveredOnceByManyNodes(t *testing.T) {
	f := newFixture(t)
	s := newService(t)
	f.alertTo("report", webhook(s.URL))
	const n = 100
	for range 3 {
		f.run()
	}
	want := map[string]int{}
	for i := range n {
		want[f.fail("report", i)] = 1
	}
	f.eventually("all of them", func() bool { return len(s.all()) >= n })
	got := map[string]int{}
	for _, r := range s.all() {
		got[r.key()]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("alerts about %d slots in %d requests, want each of %d once", len(got), len(s.all()), n)
	}
}

// The first 240 alerts go to a webhook that never answers.
func TestAlertsToAWebhookThatHangsDelayNoOtherTarget(t *testing.T) {
	f := newFixture(t)
	over := make(chan struct{})
	var tries atomic.Int64
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		tries.Add(1)
		<-over
	}))
	t.Cleanup(hangs.Close)
	t.Cleanup(func() { close(over) })
	s := newService(t)
	f.alertTo("hangs", webhook(hangs.URL+"/hook"))
	f.alertTo("report", webhook(s.URL))
	for i := range 240 {
		f.fail("hangs", i)
	}
	f.run()
	f.eventually("a delivery that hangs", func() bool { return tries.Load() > 0 })
	id := f.fail("report", 1)
	f.eventually("the other alert", func() bool { return len(s.all()) == 1 })
	if got := s.all()[0].key(); got != id {
		t.Errorf("an alert about %s, want %s", got, id)
	}
	if n := tries.Load(); n > 16 {
		t.Errorf("%d deliveries hang at once, want 16 at most", n)
	}
}

// Slack answers 404 for a webhook that was revoked. It kept back all alerts and heartbeats of the same host.
func TestARevokedWebhookDelaysNoOtherOfItsHostAndIsReported(t *testing.T) {
	f := newFixture(t)
	var revoked, good, beats atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/revoked":
			revoked.Add(1)
			w.WriteHeader(http.StatusNotFound)
		case "/beat":
			beats.Add(1)
		default:
			good.Add(1)
		}
	}))
	t.Cleanup(service.Close)
	f.alertTo("a", webhook(service.URL+"/revoked"))
	f.set(job.Job{Name: "b", OnFailure: webhook(service.URL + "/good"), Heartbeat: &job.AlertHTTP{URL: service.URL + "/beat"}})
	f.run()
	id := f.fail("a", 0)
	f.eventually("the revoked webhook to be called twice", func() bool { return revoked.Load() >= 2 })
	f.fail("b", 0)
	f.publish(job.Record{Slot: job.NewSlot("b", time.Unix(1_800_000_000, 0)), State: job.Succeeded, Attempt: 1, Finished: time.Now()}, 8, job.AlertHeartbeat)
	before := revoked.Load()
	f.eventually("the alert and the heartbeat of the other job", func() bool { return good.Load() == 1 && beats.Load() == 1 })
	if n := revoked.Load() - before; n > 1 {
		t.Errorf("they came after %d further calls of the revoked webhook", n)
	}
	f.eventually("an event that says so", func() bool {
		for e, err := range f.store.Events(t.Context(), kv.EventFilter{Job: "a", Kind: job.EventAlert}) {
			if why, hopeless := exchange.Undeliverable(e); err == nil && hopeless && e.ID == id && strings.Contains(why, "404") {
				return true
			}
		}
		return false
	})
}
