package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// doctor runs the command and returns its findings that count, and its status.
func (f *fixture) doctor(t *testing.T, args ...string) (code int, found []string) {
	t.Helper()
	r := f.run(t, append([]string{"doctor", "-o", "json"}, args...)...)
	lines := slices.Collect(strings.Lines(r.stdout))
	for i, line := range lines {
		var row struct {
			OK                  *bool
			Check, Level, About string
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch last := i == len(lines)-1; {
		case last != (row.OK != nil), last && *row.OK != (r.code == base.ExitDone):
			t.Errorf("line %d, with status %d: %s", i, r.code, line)
		case !last && row.Level != "note":
			found = append(found, row.Check+" "+row.About)
		}
	}
	if r.code != base.ExitDone && r.code != base.ExitFound || (r.code == base.ExitFound) != (len(found) > 0) {
		t.Errorf("exit status %d, stderr %q, findings %q", r.code, r.stderr, found)
	}
	return r.code, found
}

// finds waits until the doctor finds exactly these.
func (f *fixture) finds(t *testing.T, want ...string) {
	t.Helper()
	var found []string
	defer func() {
		if t.Failed() {
			t.Logf("found: %q, want %q", found, want)
		}
	}()
	natstest.Eventually(t, fmt.Sprintf("the doctor to find %q", want), func() bool {
		_, found = f.doctor(t)
		return slices.Equal(found, want)
	})
}

func (f *fixture) js(t *testing.T) jetstream.JetStream {
	t.Helper()
	return natstest.JetStream(t, natstest.Connect(t, f.url))
}

func TestDoctorOfAHealthyFleet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.replica(t)
	f.replica(t, cronce.WithoutProducing())
	f.finds(t)
	golden(t, "doctor_well.txt", strings.ReplaceAll(f.ok(t, "doctor"), server.VERSION, "VERSION"))
	golden(t, "doctor_well.json", strings.ReplaceAll(f.ok(t, "doctor", "-o", "json"), server.VERSION, "VERSION"))
}

func TestDoctorOfASickFleet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	f.define(t, plans.Definition{Job: job.Job{Name: "mail", Schedule: "@hourly", Queue: "mail"}})
	f.join(t, exchange.Node{
		Name: "w1", State: exchange.NodeAlive, Lease: time.Hour, Worker: true, Producer: true, Queues: []string{"default"}, Tzdata: "2025c",
		Started: time.Now(), ClockOffset: 90 * time.Second,
	})
	f.join(t, exchange.Node{Name: "w2", State: exchange.NodeAlive, Lease: time.Hour, Worker: true, Queues: []string{"default"}, Tzdata: "2024a"})
	if _, err := f.js(t).Publish(t.Context(), "$KV.cronce_jobs.bad", []byte("{")); err != nil {
		t.Fatal(err)
	}
	mark := exchange.Watermark{Time: at("2099-01-01T00:00:00Z"), Nonce: "n"}
	if _, err := f.store.Watermark().Write(t.Context(), mark, 0); err != nil {
		t.Fatal(err)
	}
	for format, name := range map[string]string{"text": "doctor_sick.txt", "json": "doctor_sick.json"} {
		r := f.run(t, "doctor", "-o", format)
		if r.code != base.ExitFound || r.stderr != "cronce: the check found something: 3 errors, 5 warnings, 2 notes\n" {
			t.Errorf("exit status %d, stderr %q", r.code, r.stderr)
		}
		stdout := strings.ReplaceAll(r.stdout, server.VERSION, "VERSION")
		begin, rest, _ := strings.Cut(stdout, "2099-01-01T00:00:00Z, ")
		if _, end, ok := strings.Cut(rest, " ahead"); ok {
			stdout = begin + "2099-01-01T00:00:00Z, AGES ahead" + end
		}
		golden(t, name, stdout)
	}
}

// The doctor inspects also a broker whose streams Open refuses.
func TestDoctorFindsWhatNodesRefuse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	js := f.js(t)
	remake := func(name string, edit func(*jetstream.StreamConfig)) {
		t.Helper()
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		edit(&cfg)
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	remake("KV_cronce_ledger", func(c *jetstream.StreamConfig) { c.Storage, c.MaxAge = jetstream.MemoryStorage, 0 })
	if _, err := js.CreateConsumer(t.Context(), "cronce_slots", jetstream.ConsumerConfig{
		Durable: "default", FilterSubject: "cronce.slot.default.>", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5,
	}); err != nil {
		t.Fatal(err)
	}
	_, found := f.doctor(t)
	for _, want := range []string{"storage bucket cronce_ledger", "layout bucket cronce_ledger", "layout queue default"} {
		if !slices.Contains(found, want) {
			t.Errorf("%q is not among %q", want, found)
		}
	}
	if err := js.DeleteStream(t.Context(), "cronce_events"); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "cronce_timers"); err != nil {
		t.Fatal(err)
	}
	_, found = f.doctor(t)
	for _, want := range []string{"missing stream cronce_events", "timers stream cronce_timers"} {
		if !slices.Contains(found, want) {
			t.Errorf("%q is not among %q", want, found)
		}
	}
	f.run(t, "doctor", "--namespace", "other").oneError(t, base.ExitFailed, `"other" is not set up`)
}

func TestDoctorOfABrokerThatIsNotThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it listens, and says nothing
	c := cli{env: map[string]string{"CRONCE_SERVER": "nats://" + l.Addr().String()}}
	c.run(t, "doctor").oneError(t, base.ExitFailed, l.Addr().String())
	c.run(t, "doctor", "--monitor", "n1:8222").oneError(t, base.ExitUsage, "n1:8222", "http://n1:8222")
	c.run(t, "doctor", "--monitor", "ftp://ada:s3cret@n1:8222").oneError(t, base.ExitUsage, `"ftp://n1:8222"`)
}

func TestDoctorAsksTheMonitoringPort(t *testing.T) {
	t.Parallel()
	for name, sync := range map[string]bool{"synced": true, "default": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Run(t, func(o *server.Options) { o.HTTPHost, o.HTTPPort, o.SyncAlways = "127.0.0.1", -1, sync })
			f := &fixture{cli: cli{env: map[string]string{"CRONCE_SERVER": s.ClientURL()}}, url: s.ClientURL()}
			kvtest.Open(t, s.JetStream(), kv.Options{})
			if _, found := f.doctor(t); len(found) > 0 {
				t.Errorf("without asking it: %q", found)
			}
			url := "http://" + s.MonitorAddr().String()
			var want []string
			if !sync {
				want = []string{"sync server single"}
			}
			if _, found := f.doctor(t, "--monitor", url); !slices.Equal(found, want) {
				t.Errorf("found %q, want %q", found, want)
			}
			if r := f.run(t, "doctor", "--monitor", url); strings.Contains(r.stdout, "cannot be known") {
				t.Errorf("it was asked:\n%s", r.stdout)
			}
			f.run(t, "doctor", "--monitor", "http://"+s.Addr().String()).oneError(t, base.ExitFailed, "monitoring port")
		})
	}
}

// A queue with slots and no worker, jobs without handlers, and a worker that does not pull.
func TestDoctorFindsWhatNobodyWorksOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stop := f.replica(t)
	f.finds(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "orphan", Schedule: "@hourly"}})
	f.finds(t, "handler job orphan")
	revision := f.define(t, plans.Definition{Job: job.Job{Name: "mail", Schedule: "@hourly", Queue: "mail"}})
	f.publish(t, "mail", core.Message{Slot: job.NewSlot("mail", time.Now().Truncate(time.Hour)), JobRevision: revision, Node: "n"})
	f.finds(t, "worker queue mail", "handler job orphan")
	stop()
	f.finds(t, "producer ", "worker queue default", "worker queue mail")

	// The worker's record says that it works on the queue, but it does not pull.
	if _, err := f.store.Slots().Queue(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	f.join(t, exchange.Node{Name: "idle", State: exchange.NodeAlive, Lease: time.Hour, Worker: true, Queues: []string{"mail"}}, "mail")
	f.finds(t, "producer ", "worker queue default", "unasked queue mail", "settings node idle (lease 1h0m0s)")

	// It pulls nothing because it runs a slot of the queue, which began after its last heartbeat.
	began := time.Now().UTC()
	f.record(t, job.Record{
		Slot: job.Slot{Job: "mail", Token: "long"}, Queue: "mail", Node: "idle", Attempt: 1, MaxAttempts: 1, Published: began,
		Attempts: []job.Attempt{{Number: 1, Node: "idle", Started: began}},
	}, job.Running)
	f.finds(t, "producer ", "worker queue default", "settings node idle (lease 1h0m0s)")

	if _, err := f.js(t).PauseConsumer(t.Context(), "cronce_slots", "mail", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.finds(t, "producer ", "worker queue default", "paused queue mail", "settings node idle (lease 1h0m0s)")
}

func TestDoctorFindsAlertsAndMessagesThatNobodyTakes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	js := natstest.JetStream(t, natstest.Connect(t, f.url))
	charge := job.Job{Name: "charge", On: job.On{Stream: "ORDERS", Subject: "orders.paid"}, OnFailure: &job.Alert{NATS: &job.AlertNATS{Subject: "alerts"}}}
	f.define(t, plans.Definition{Job: charge, Owner: "file", Node: "web1"})
	if r := f.run(t, "doctor"); r.code != base.ExitFound || !strings.Contains(r.stdout, "stream ORDERS, whose messages should start it, does not exist") {
		t.Errorf("status %d:\n%s", r.code, r.stdout)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	e, _, err := f.store.Jobs().Read(t.Context(), "charge")
	if err == nil {
		// A producer created the consumer, and has ended.
		err = f.store.BeginOn(t.Context(), "charge", layout.OnConsumers("cronce", "charge")[0], e.OnPlans()[0], e.Since())
	}
	if err == nil {
		_, err = f.store.Alerts(t.Context())
	}
	if err == nil {
		_, err = js.Publish(t.Context(), "orders.paid", nil)
	}
	if err == nil {
		err = f.store.Alert(t.Context(), job.Event{V: codec.Version, Kind: job.EventAlert, Alert: job.Failed, ID: "charge:@1", Job: "charge"}, "1")
	}
	if err != nil {
		t.Fatal(err)
	}
	r := f.run(t, "doctor")
	for _, says := range []string{"1 wait, and no worker asks for them", "1 messages of stream ORDERS wait, and no producer asks for them"} {
		if r.code != base.ExitFound || !strings.Contains(r.stdout, says) {
			t.Errorf("status %d, want %q in\n%s", r.code, says, r.stdout)
		}
	}
}

// With a watermark in the future, nothing runs, and the doctor reports it. A running fleet follows the
// reset, and no slot runs twice.
func TestDoctorResetsAWatermarkThatIsAhead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stop := f.replica(t)
	f.finds(t)
	succeeded := func() (n int) {
		for e, err := range f.store.Ledger().List(t.Context(), kv.ListFilter{}) {
			switch {
			case err != nil, e.State == job.Running:
			case e.State == job.Succeeded && len(e.Attempts) == 1:
				n++
			default:
				t.Errorf("%s is %s after %d attempts", e.Slot, e.State, len(e.Attempts))
			}
		}
		return n
	}
	natstest.Eventually(t, "slots to run", func() bool { return succeeded() >= 3 })
	if r := f.run(t, "doctor", "--reset-watermark"); r.code != base.ExitDone || !strings.Contains(r.stderr, "it is not reset") {
		t.Errorf("a watermark that is right: %+v", r)
	}
	stop()

	ctx := context.WithoutCancel(t.Context())
	mark, revision, err := f.store.Watermark().Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	right := mark
	mark.Time, mark.Nonce = at("2036-01-01T00:00:00Z"), "the clock was wrong"
	if _, err := f.store.Watermark().Write(ctx, mark, revision); err != nil {
		t.Fatal(err)
	}
	f.replica(t)
	f.finds(t, "watermark watermark")
	before := succeeded()

	r := f.run(t, "doctor", "--reset-watermark")
	if !strings.HasPrefix(r.stdout, "the watermark was moved back from 2036-01-01T00:00:00Z to ") {
		t.Errorf("%+v", r)
	}
	natstest.Eventually(t, "slots to run again", func() bool { return succeeded() >= before+3 })
	f.finds(t)
	if mark, _, err := f.store.Watermark().Read(ctx); err != nil || mark.Time.Before(right.Time) || mark.Time.After(time.Now().Add(time.Minute)) {
		t.Errorf("the watermark is %+v, %v", mark, err)
	}
	for ev := range f.store.Events(ctx, kv.EventFilter{}) {
		t.Errorf("an exceptional event: %+v", ev)
	}
}

// In a jobs bucket that was created anew, revisions begin at one again.
func TestDoctorResetsAWatermarkOfAnotherRegistry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	from := time.Now()
	mark := exchange.Watermark{Time: from, Revision: 5000, RegistryTime: from, Nonce: "n"}
	if _, err := f.store.Watermark().Write(t.Context(), mark, 0); err != nil {
		t.Fatal(err)
	}
	f.replica(t)
	f.finds(t, "watermark watermark")
	if code, found := f.doctor(t, "--reset-watermark"); code == base.ExitFound && slices.Contains(found, "watermark watermark") {
		t.Errorf("after the reset: %q", found)
	}
	f.finds(t)
	natstest.Eventually(t, "the watermark to move", func() bool {
		mark, _, err := f.store.Watermark().Read(t.Context())
		return err == nil && mark.Time.After(from.Add(2*time.Second)) && mark.Revision > 0 && mark.Revision < 5000
	})
}

// A viewer may read all that the doctor needs. The doctor says what these permissions do not let it know.
func TestDoctorWithAViewersPermissions(t *testing.T) {
	t.Parallel()
	access := layout.Access{Roles: []layout.Role{layout.RoleViewer}}
	grants, err := access.Grants()
	if err != nil {
		t.Fatal(err)
	}
	may := server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{}}
	for _, g := range grants {
		may.Publish.Allow = append(may.Publish.Allow, g.Publish...)
		may.Subscribe.Allow = append(may.Subscribe.Allow, g.Subscribe...)
	}
	s := natstest.Run(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "all", Password: "p"}, {Username: "viewer", Password: "p", Permissions: &may}}
	})
	kvtest.Open(t, s.JetStream(nats.UserInfo("all", "p")), kv.Options{})
	url := strings.Replace(s.ClientURL(), "://", "://viewer:p@", 1)
	c := cli{env: map[string]string{"CRONCE_SERVER": url}}
	if r := c.run(t, "doctor"); r.code != base.ExitDone || !strings.Contains(r.stdout, "cannot be known with these permissions") {
		t.Errorf("%+v", r)
	}
}
