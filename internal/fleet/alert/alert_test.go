package alert_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/alert"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = 30 * time.Second

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
	store, err := kv.Open(t.Context(), js, kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
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

// fail has a slot of the job end, told as a worker tells it, twice.
func (f *fixture) fail(name string, n int) string {
	f.Helper()
	r := job.Record{Slot: job.NewSlot(name, time.Unix(int64(1_800_000_000+n), 0)), State: job.Failed, Attempt: 3, Error: "boom", Finished: time.Now()}
	e := exchange.NewAlert(r, 7, r.State)
	e.Node = "w1"
	for range 2 {
		if err := f.store.Alert(f.Context(), e, exchange.AlertID(r, 7, r.State)); err != nil {
			f.Fatal(err)
		}
	}
	return r.Slot.ID()
}

// hook is a webhook that answers with the statuses, one after the other, and then
// with 200.
type hook struct {
	*httptest.Server
	mu       sync.Mutex
	statuses []int
	heard    []heard
}

type heard struct {
	key, auth, fence string
	body             job.Event
}

func newHook(t *testing.T, statuses ...int) *hook {
	h := &hook{statuses: statuses}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		one := heard{key: r.Header.Get("Idempotency-Key"), auth: r.Header.Get("Authorization"), fence: r.Header.Get("Cronce-Fence")}
		data, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(data, &one.body); err != nil {
			t.Errorf("the body is %q: %v", data, err)
		}
		h.heard = append(h.heard, one)
		if len(h.statuses) > 0 {
			w.WriteHeader(h.statuses[0])
			h.statuses = h.statuses[1:]
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) all() []heard {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.heard)
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.Helper()
	natstest.Eventually(f, limit, what, ok)
}

func (f *fixture) job(name string, a *job.Alert) {
	f.Helper()
	j := job.Job{Name: name, Schedule: "@daily", OnFailure: a}
	if err := j.Validate(); err != nil {
		f.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[name] = j
}

func TestAWebhookIsToldUntilItHasTakenTheAlert(t *testing.T) {
	f := newFixture(t)
	h := newHook(t, 503, 404)
	f.env["CRONCE_ALERT_TOKEN"] = "word"
	f.job("report", &job.Alert{HTTP: &job.AlertHTTP{URL: h.URL + "/alerts", Headers: []job.AlertHeader{{Name: "Authorization", Prefix: "Bearer ", Env: "CRONCE_ALERT_TOKEN"}}}})
	f.run()
	id := f.fail("report", 1)
	f.eventually("three tries", func() bool { return len(h.all()) == 3 })
	for _, got := range h.all() {
		if got.key != id || got.auth != "Bearer word" || got.body.ID != id || got.body.Alert != job.Failed || got.body.Error != "boom" ||
			got.body.Attempt != 3 || got.body.Fence != 7 || got.fence != "7" || got.body.Job != "report" || got.body.Node != "w1" {
			t.Errorf("it heard %+v", got)
		}
	}
	f.eventually("the ack", func() bool {
		c, err := f.consumer()
		return err == nil && c.NumAckPending == 0 && c.NumPending == 0
	})
	if n := len(h.all()); n != 3 {
		t.Errorf("delivered %d alerts, want 3: the remaining ones are dropped", n)
	}
	if strings.Contains(f.logged(), "word") {
		t.Errorf("the secret is in the log: %s", f.logged())
	}
}

func TestAnAlertWaitsForANodeThatHasItsSecret(t *testing.T) {
	f := newFixture(t)
	h := newHook(t)
	f.job("report", &job.Alert{HTTP: &job.AlertHTTP{URLEnv: "CRONCE_ALERT_URL"}})
	f.run()
	id := f.fail("report", 1)
	f.eventually("a warning", func() bool { return strings.Contains(f.logged(), "CRONCE_ALERT_URL") })
	other := &fixture{T: f.T, nc: f.nc, store: f.store, jobs: f.jobs, env: map[string]string{"CRONCE_ALERT_URL": h.URL + "/T0PSECRET"}}
	other.run()
	f.eventually("the delivery", func() bool { return len(h.all()) > 0 })
	if got := h.all()[0].key; got != id {
		t.Errorf("it heard of %s, want %s", got, id)
	}
}

func TestAURLThatIsASecretIsInNoLog(t *testing.T) {
	f := newFixture(t)
	h := newHook(t, 500)
	f.env["CRONCE_ALERT_URL"] = h.URL + "/T0PSECRET"
	f.job("report", &job.Alert{HTTP: &job.AlertHTTP{URLEnv: "CRONCE_ALERT_URL"}})
	f.run()
	f.fail("report", 1)
	f.eventually("the second try", func() bool { return len(h.all()) > 1 })
	if l := f.logged(); strings.Contains(l, "T0PSECRET") || !strings.Contains(l, "$CRONCE_ALERT_URL") {
		t.Errorf("logged: %s", l)
	}
}

func TestASubjectIsToldWhenSomebodyListens(t *testing.T) {
	f := newFixture(t)
	f.job("report", &job.Alert{NATS: &job.AlertNATS{Subject: "alerts.jobs"}})
	f.run()
	id := f.fail("report", 1)
	f.eventually("a warning", func() bool { return strings.Contains(f.logged(), "no subscriber") })
	sub, err := f.nc.SubscribeSync("alerts.jobs") // which never answers
	if err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(limit)
	if err != nil {
		t.Fatal(err)
	}
	var e job.Event
	if err := json.Unmarshal(m.Data, &e); err != nil || e.ID != id || m.Header.Get("Idempotency-Key") != id {
		t.Errorf("it heard %s with %v", m.Data, m.Header)
	}
	f.eventually("the ack", func() bool {
		c, err := f.consumer()
		return err == nil && c.NumAckPending == 0 && c.NumPending == 0
	})
}

// Write access to the registry must not make a node publish in its own name.
func TestNoAlertGoesToTheServerOrIntoTheNamespace(t *testing.T) {
	f := newFixture(t)
	sub, err := f.nc.SubscribeSync("cronce.slot.>")
	if err != nil {
		t.Fatal(err)
	}
	f.job("report", &job.Alert{NATS: &job.AlertNATS{Subject: "cronce.slot.default.report"}})
	f.run()
	f.fail("report", 1)
	f.eventually("a warning", func() bool { return strings.Contains(f.logged(), "alerts must not go there") })
	if n, _, _ := sub.Pending(); n > 0 {
		t.Error("it was published")
	}
}

// Of the events of this kind, only alerts are delivered; and only to jobs that want
// them now.
func TestWhatIsNotToBeDeliveredIsTakenOutOfTheWay(t *testing.T) {
	f := newFixture(t)
	h := newHook(t)
	f.job("report", &job.Alert{HTTP: &job.AlertHTTP{URL: h.URL}})
	f.job("payroll", &job.Alert{HTTP: &job.AlertHTTP{URL: h.URL}})
	f.job("quiet", nil)
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
	f.eventually("an empty feed", func() bool {
		c, err := f.consumer()
		return err == nil && c.NumAckPending == 0 && c.NumPending == 0 && c.Delivered.Consumer > 0
	})
	if got := h.all(); len(got) != 1 || got[0].key != id {
		t.Errorf("it heard %+v, want of %s alone", got, id)
	}
}

func TestManyAlertsAreDeliveredByManyEachOnce(t *testing.T) {
	f := newFixture(t)
	h := newHook(t)
	f.job("report", &job.Alert{HTTP: &job.AlertHTTP{URL: h.URL}})
	const n = 100
	for range 3 {
		f.run()
	}
	want := map[string]int{}
	for i := range n {
		want[f.fail("report", i)] = 1
	}
	f.eventually("all of them", func() bool { return len(h.all()) >= n })
	got := map[string]int{}
	for _, one := range h.all() {
		got[one.key]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("it heard of %d slots in %d calls, want each of %d once", len(got), len(h.all()), n)
	}
}

// The first 240 alerts are to a webhook that never answers.
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
	h := newHook(t)
	f.job("hangs", &job.Alert{HTTP: &job.AlertHTTP{URL: hangs.URL + "/hook"}})
	f.job("report", &job.Alert{HTTP: &job.AlertHTTP{URL: h.URL}})
	for i := range 240 {
		f.fail("hangs", i)
	}
	f.run()
	f.eventually("it to hang", func() bool { return tries.Load() > 0 })
	id := f.fail("report", 1)
	f.eventually("the other alert", func() bool { return len(h.all()) == 1 })
	if got := h.all()[0].key; got != id {
		t.Errorf("it heard of %s, want %s", got, id)
	}
	if n := tries.Load(); n > 16 {
		t.Errorf("%d deliveries hang at once, want 16 at most", n)
	}
}

// The alerts of one job are purged while a worker has alerts pending: the server never delivers
// those of other jobs again (integration/facts). What the operations page
// says has them delivered.
func TestAlertsThatAPurgeTookAwayAreDeliveredWhenTheConsumerIsRemoved(t *testing.T) {
	f := newFixture(t)
	h := newHook(t)
	f.job("report", &job.Alert{HTTP: &job.AlertHTTP{URL: h.URL}})
	if _, err := f.store.Alerts(t.Context()); err != nil {
		t.Fatal(err)
	}
	js := natstest.JetStream(t, f.nc)
	stream, err := js.Stream(t.Context(), "cronce_events")
	if err != nil {
		t.Fatal(err)
	}
	taker, err := stream.Consumer(t.Context(), layout.AlertConsumer)
	if err != nil {
		t.Fatal(err)
	}
	lost := f.fail("report", 1)
	f.fail("noisy", 1)
	natstest.Take(t, taker, 2) // by one that dies
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("cronce.event.alert.noisy")); err != nil {
		t.Fatal(err)
	}
	f.run()
	next := f.fail("report", 2)
	f.eventually("the next alert", func() bool { return len(h.all()) == 1 && h.all()[0].key == next })
	f.eventually("the floor to pass what was in hand", func() bool {
		c, err := f.consumer()
		return err == nil && c.AckFloor.Stream > 1
	})
	if err := stream.DeleteConsumer(t.Context(), layout.AlertConsumer); err != nil {
		t.Fatal(err)
	}
	f.eventually("all of them", func() bool {
		return slices.ContainsFunc(h.all(), func(one heard) bool { return one.key == lost })
	})
}
