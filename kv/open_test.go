package kv_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// wantError checks that err is want, and that its one line contains all of the words.
func wantError(t *testing.T, err, want error, words ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want one that is %q", err, want)
	}
	for _, word := range append(words, "") {
		if !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n") {
			t.Errorf("the error should say %q, in one line:\n%v", word, err)
		}
	}
}

func streams(t *testing.T, js jetstream.JetStream) []string {
	t.Helper()
	var names []string
	list := js.StreamNames(t.Context())
	for name := range list.Name() {
		names = append(names, name)
	}
	if list.Err() != nil {
		t.Fatal(list.Err())
	}
	slices.Sort(names)
	return names
}

// counting returns a client, and a function that counts the client's requests to the
// JetStream API by their prefix, like "STREAM.UPDATE".
func counting(t *testing.T, nc *nats.Conn) (js jetstream.JetStream, count func(prefix string) int) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	js, err := jetstream.New(nc, jetstream.WithClientTrace(&jetstream.ClientTrace{RequestSent: func(subject string, _ []byte) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, strings.TrimPrefix(subject, "$JS.API."))
	}}))
	if err != nil {
		t.Fatal(err)
	}
	return js, func(prefix string) int {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, subject := range all {
			if strings.HasPrefix(subject, prefix) {
				n++
			}
		}
		return n
	}
}

func TestOpenCreatesOnceAndThenOnlyLooks(t *testing.T) {
	t.Parallel()
	nc := natstest.Run(t).Conn()
	first := open(t, natstest.JetStream(t, nc), kv.Options{})
	want := job.Settings{}.WithDefaults()
	want.Replicas = 1
	if got := first.Settings(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("settings %+v, want the defaults %+v", got, want)
	}
	names := []string{"KV_cronce_jobs", "KV_cronce_ledger", "KV_cronce_nodes", "KV_cronce_state", "cronce_events", "cronce_slots", "cronce_timers"}
	js, count := counting(t, nc)
	if got := streams(t, js); !slices.Equal(got, names) {
		t.Errorf("streams %v, want %v", got, names)
	}
	before := count("")
	if again := open(t, js, kv.Options{}); fmt.Sprint(again.Settings()) != fmt.Sprint(want) {
		t.Errorf("opened again: %+v", again.Settings())
	}
	if n := count("") - before; n > len(names) {
		t.Errorf("to open what is there cost %d requests, want one for each of %d streams", n, len(names))
	}
	if n := count("STREAM.CREATE") + count("STREAM.UPDATE"); n > 0 {
		t.Errorf("%d creations and updates of what was there", n)
	}
}

func TestSettingsOfTheFirstHold(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	open(t, js, kv.Options{Want: job.Settings{Lease: 3 * time.Second, Horizon: time.Hour}})
	adopted := open(t, js, kv.Options{}).Settings()
	if adopted.Lease != 3*time.Second || adopted.Horizon != time.Hour {
		t.Errorf("adopted %+v", adopted)
	}
	open(t, js, kv.Options{Want: job.Settings{Lease: 3 * time.Second}})
	_, err := kv.Open(within(t, time.Minute), js, kv.Options{Want: job.Settings{Lease: 5 * time.Second}})
	wantError(t, err, job.ErrMismatch, "lease 3s", "lease 5s", "cronce setup --lease 5s")
}

func TestOfRacingCreatorsOneIsFollowed(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	const racers = 6
	var mu sync.Mutex
	var opened []time.Duration
	refused := 0
	var all sync.WaitGroup
	for i := range racers {
		js := s.JetStream()
		all.Go(func() {
			want := job.Settings{Lease: time.Duration(3+i%3) * time.Second}
			store, err := kv.Open(within(t, time.Minute), js, kv.Options{Want: want})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				opened = append(opened, store.Settings().Lease)
			case errors.Is(err, job.ErrMismatch):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	slices.Sort(opened)
	if len(opened) != 2 || refused != racers-2 || len(slices.Compact(opened)) != 1 {
		t.Errorf("opened with %v, %d refused; want the two with the winner's lease, and no others", opened, refused)
	}
}

// A stream with the name of one of the namespace exists, and differs in a way that
// matters. Open refuses it and leaves nothing behind.
func TestRefusalLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	ledger := jetstream.StreamConfig{
		Name: "KV_%s_ledger", Subjects: []string{"$KV.%s_ledger.>"}, MaxMsgsPerSubject: 1, MaxAge: job.DefaultRetention,
		Discard: jetstream.DiscardNew, AllowDirect: true,
	}
	slots := jetstream.StreamConfig{
		Name: "%s_slots", Subjects: []string{"%s.slot.>"}, Retention: jetstream.WorkQueuePolicy, AllowDirect: true,
		Duplicates: job.DefaultDuplicates,
	}
	type config = jetstream.StreamConfig
	var n atomic.Int64
	for name, test := range map[string]struct {
		base  config
		edit  func(*config)
		words []string
	}{
		"history":      {ledger, func(c *config) { c.MaxMsgsPerSubject = 5 }, []string{"_ledger", "history", " 5, not 1", "cronce setup"}},
		"memory":       {ledger, func(c *config) { c.Storage = jetstream.MemoryStorage }, []string{"storage Memory, not File", "nats kv del"}},
		"retention":    {ledger, func(c *config) { c.MaxAge = time.Hour }, []string{"max age 1h0m0s, not 168h0m0s", "cronce setup"}},
		"no retention": {ledger, func(c *config) { c.MaxAge = 0 }, []string{"max age 0s, not 168h0m0s"}},
		"slots age":    {slots, func(c *config) { c.MaxAge = time.Hour }, []string{"_slots", "max age 1h0m0s, not 0s"}},
		"limits":       {slots, func(c *config) { c.Retention = jetstream.LimitsPolicy }, []string{"retention Limits, not WorkQueue", "nats stream rm"}},
		"subjects":     {slots, func(c *config) { c.Subjects = []string{"%s.slot.default.>"} }, []string{"subjects", ".slot.>"}},
		"duplicates":   {slots, func(c *config) { c.Duplicates = time.Second }, []string{"duplicate window 1s, not 2m0s"}},
		"drops": {slots, func(c *config) { c.MaxBytes, c.Discard = 1000, jetstream.DiscardOld },
			[]string{"size limit", "DiscardOld, not DiscardNew"}},
		"direct get": {slots, func(c *config) { c.AllowDirect = false }, []string{"direct get false, not true"}},
		"no ack":     {slots, func(c *config) { c.NoAck = true }, []string{"no ack true"}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := fmt.Sprintf("f%d", n.Add(1))
			cfg := test.base
			test.edit(&cfg)
			cfg.Name = strings.ReplaceAll(cfg.Name, "%s", ns)
			cfg.Subjects = []string{strings.ReplaceAll(cfg.Subjects[0], "%s", ns)}
			if _, err := js.CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			before := streams(t, js)
			_, err := kv.Open(within(t, time.Minute), js, kv.Options{Namespace: ns})
			wantError(t, err, job.ErrMismatch, append(test.words, ns)...)
			if after := streams(t, js); !slices.Equal(before, after) {
				t.Errorf("half created: %v, before %v", after, before)
			}
		})
	}
}

func TestWhatDoesNotMatterIsLeftAlone(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	cfg := jetstream.StreamConfig{
		Name: "cronce_slots", Subjects: []string{"cronce.slot.>"}, Retention: jetstream.WorkQueuePolicy, AllowDirect: true,
		Duplicates: job.DefaultDuplicates, Discard: jetstream.DiscardNew, MaxBytes: 1 << 20, Description: "ours",
		AllowAtomicPublish: true,
	}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	open(t, js, kv.Options{})
	if changes, err := space.Setup(t.Context(), js, kv.Options{}); err != nil || len(changes) != 1 || !madeAlerts(changes[0]) {
		t.Errorf("setup changed %q, %v", changes, err)
	}
	if changes, err := space.Setup(t.Context(), js, kv.Options{}); err != nil || len(changes) > 0 {
		t.Errorf("the second time setup changed %q, %v", changes, err)
	}
}

// madeAlerts reports whether the change is the creation of the alerts, which Setup must
// make itself if no node has opened the alerts yet.
func madeAlerts(change string) bool {
	return change == "created consumer alerts of stream cronce_events"
}

func TestReadOnlyCreatesNothing(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	_, err := kv.Open(within(t, time.Minute), js, kv.Options{Namespace: "other", ReadOnly: true})
	wantError(t, err, job.ErrNotFound, "other", "cronce run", "cronce setup --namespace other")
	if left := streams(t, js); len(left) > 0 {
		t.Errorf("created %v", left)
	}
	open(t, js, kv.Options{Namespace: "other"})
	open(t, js, kv.Options{Namespace: "other", ReadOnly: true})
}

// Invariant 7: the ledger's retention is longer than the horizon.
func TestSettingsThatBreakTheRulesAreRefused(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	_, err := kv.Open(within(t, time.Minute), js, kv.Options{Want: job.Settings{Horizon: 48 * time.Hour, Retention: 24 * time.Hour}})
	wantError(t, err, job.ErrInvalid, "retention 24h0m0s", "horizon 48h0m0s")
	if left := streams(t, js); len(left) > 0 {
		t.Errorf("created %v", left)
	}
	_, err = kv.Open(within(t, time.Minute), js, kv.Options{Namespace: "a.b"})
	wantError(t, err, job.ErrInvalid, `"a.b"`)
}

// Open validates stored settings, since another program may have stored them.
func TestStoredSettingsAreChecked(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	open(t, js, kv.Options{})
	state, err := js.KeyValue(t.Context(), "cronce_state")
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]error{
		`{"v":1,"lease":"20s","horizon":"200h","retention":"168h","duplicates":"2m","replicas":1}`: job.ErrInvalid,
		`{"v":2}`:  job.ErrVersion,
		`"lease"`:  job.ErrInvalid,
		`{"v":1,}`: job.ErrInvalid,
	} {
		if _, err := state.PutString(t.Context(), "settings", value); err != nil {
			t.Fatal(err)
		}
		_, err := kv.Open(within(t, time.Minute), js, kv.Options{})
		wantError(t, err, want, "cronce_state/settings")
	}
}

func TestNamespacesAreApart(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	names := []string{"a", "a_slots", "KV_a", "A"}
	for i, ns := range names {
		s := open(t, js, kv.Options{Namespace: ns})
		if _, err := s.Watermark().Write(t.Context(), exchange.Watermark{Revision: uint64(i + 1), Nonce: "n"}, 0); err != nil {
			t.Fatal(err)
		}
		publish(t, s, "default", core.Message{Slot: job.NewSlot("report", at)})
	}
	for i, ns := range names {
		s := open(t, js, kv.Options{Namespace: ns})
		mark, _, err := s.Watermark().Read(t.Context())
		if err != nil || mark.Revision != uint64(i+1) {
			t.Errorf("%s: %+v, %v", ns, mark, err)
		}
		if n := len(waiting(t, s, stream.WaitingFilter{})); n != 1 {
			t.Errorf("%s: %d slots wait, want its own", ns, n)
		}
	}
}

func TestWithoutJetStream(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t, func(o *server.Options) { o.JetStream = false }).JetStream()
	_, err := kv.Open(within(t, time.Minute), js, kv.Options{})
	wantError(t, err, nats.ErrNoResponders, "JetStream is not enabled", "nats-server with -js", "127.0.0.1")
}

// The broker is in another domain. Subjects that begin with $KV do not reach it, so writes
// need its prefix.
func TestOverALeafNode(t *testing.T) {
	t.Parallel()
	hub := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", server.RANDOM_PORT
	})
	leaf := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "leaf", "leaf"
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats", Host: hub.LeafAddr()}}}}
	})
	natstest.Eventually(t, "the leaf to reach the hub", func() bool { return leaf.NumLeafNodes() == 1 })
	js, err := jetstream.NewWithDomain(leaf.Conn(), "hub")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, js, kv.Options{})
	rev, err := s.Watermark().Write(within(t, 10*time.Second), exchange.Watermark{Revision: 3, Nonce: "n"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if mark, got, err := s.Watermark().Read(within(t, 10*time.Second)); err != nil || got != rev || mark.Revision != 3 {
		t.Errorf("read %+v at %d, %v", mark, got, err)
	}
	publish(t, s, "default", core.Message{Slot: job.NewSlot("report", at)})
	if n := len(waiting(t, s, stream.WaitingFilter{})); n != 1 {
		t.Errorf("%d slots wait", n)
	}
	due := time.Now().Add(300 * time.Millisecond)
	if _, err := s.Timers().Set(within(t, 10*time.Second), timer("k", due), 0); err != nil {
		t.Fatal(err)
	}
	fired(t, s, "default")
	if n := len(streams(t, hub.JetStream())); n != 7 {
		t.Errorf("%d streams on the hub, want all", n)
	}

	// Create the same namespace on the leaf. The leaf then stores the slots too. If its
	// answer arrives first, the hub's producers must get an error.
	open(t, leaf.JetStream(), kv.Options{})
	if err := hub.JetStream().DeleteStream(t.Context(), "cronce_slots"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Slots().Publish(within(t, 10*time.Second), "default", core.Message{Slot: job.NewSlot("report", at.Add(time.Hour))}, nil)
	if err == nil || !strings.Contains(err.Error(), `domain "leaf", not "hub"`) {
		t.Errorf("got %v, want the other domain named", err)
	}
}

func TestMoreReplicasThanServers(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	_, err := kv.Open(within(t, time.Minute), js, kv.Options{Want: job.Settings{Replicas: 3}})
	var api *jetstream.APIError
	if !errors.As(err, &api) || !strings.Contains(err.Error(), "bucket cronce_state") {
		t.Fatalf("got %v", err)
	}
	if left := streams(t, js); len(left) > 0 {
		t.Errorf("created %v", left)
	}
}

func TestSetupChangesTheLeaseEverywhereAndNothingTwice(t *testing.T) {
	t.Parallel()
	nc := natstest.Run(t).Conn()
	js, count := counting(t, nc)
	s := open(t, js, kv.Options{})
	for _, queue := range []func(context.Context, string) (jetstream.Consumer, error){s.Slots().Queue, s.Timers().Queue} {
		if _, err := queue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Alerts(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := kv.Options{Want: job.Settings{Lease: 5 * time.Second}}
	changes, err := space.Setup(t.Context(), js, want)
	if all := strings.Join(changes, "\n"); err != nil || len(changes) != 3 || !strings.Contains(all, "queue default of stream cronce_timers: ack wait 5s") || !strings.Contains(all, "lease 5s instead of lease 20s") || !strings.Contains(all, "queue default: ack wait 5s") {
		t.Fatalf("setup: %q, %v", changes, err)
	}
	if _, err := s.Slots().Queue(t.Context(), "default"); err != nil { // this node still uses the old lease
		t.Errorf("queue, by the settings of before: %v", err)
	}
	c, err := open(t, js, kv.Options{}).Slots().Queue(t.Context(), "default")
	if err != nil || c.CachedInfo().Config.AckWait != 5*time.Second {
		t.Fatalf("queue: %v", err)
	}
	changes, err = space.Setup(t.Context(), js, want)
	if err != nil || len(changes) > 0 {
		t.Errorf("setup again: %q, %v", changes, err)
	}
	if n := count("STREAM.UPDATE"); n > 0 {
		t.Errorf("%d updates of streams that were right", n)
	}
}

func TestSetupCreatesAndMends(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	changes, err := space.Setup(t.Context(), js, kv.Options{})
	if err != nil || len(changes) != 9 {
		t.Fatalf("setup of nothing: %q, %v", changes, err)
	}
	stream, err := js.Stream(t.Context(), "KV_cronce_ledger")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgsPerSubject, cfg.AllowDirect, cfg.Description = 5, false, "kept"
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if changes, err = space.Setup(t.Context(), js, kv.Options{}); err != nil || len(changes) != 2 {
		t.Fatalf("setup of a changed ledger: %q, %v", changes, err)
	}
	open(t, js, kv.Options{})
	if stream, err = js.Stream(t.Context(), "KV_cronce_ledger"); err != nil || stream.CachedInfo().Config.Description != "kept" {
		t.Errorf("%v: the description is the operator's", err)
	}

	for _, retention := range []time.Duration{400 * time.Hour, 100 * time.Hour} {
		changes, err = space.Setup(t.Context(), js, kv.Options{Want: job.Settings{Retention: retention}})
		if err != nil || len(changes) != 3 {
			t.Fatalf("retention %v: %q, %v; want the settings, the ledger and the events", retention, changes, err)
		}
		if got := open(t, js, kv.Options{}).Settings().Retention; got != retention {
			t.Errorf("retention %v, want %v", got, retention)
		}
	}
	_, err = space.Setup(t.Context(), js, kv.Options{Want: job.Settings{Horizon: 100 * time.Hour}})
	wantError(t, err, job.ErrInvalid, "retention")
}

func TestSetupRefusesWhatItCannotChange(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "cronce_jobs", Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	_, err := space.Setup(t.Context(), js, kv.Options{})
	wantError(t, err, job.ErrMismatch, "bucket cronce_jobs has storage Memory, not File", "nats kv del cronce_jobs")
	if left := streams(t, js); len(left) != 1 {
		t.Errorf("half created: %v", left)
	}
}

// The server does not answer a request that it does not permit, so the error must give the
// reason.
func TestWithoutPermission(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) {
		deny := &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.CREATE.>"}}
		o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{Publish: deny}}}
	})
	_, err := kv.Open(within(t, 500*time.Millisecond), s.JetStream(nats.UserInfo("u", "p")), kv.Options{})
	wantError(t, err, nats.ErrPermissionViolation, "create bucket cronce_state", "STREAM.CREATE.KV_cronce_state")
}

// If the broker does not answer, Open waits until its context ends. The error names the
// broker.
func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	js := s.JetStream()
	s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := kv.Open(ctx, js, kv.Options{})
	wantError(t, err, job.ErrUnknown, "bucket cronce_state")
}

// The settings are lost, and this login may not store them. Open continues when another
// login has stored them.
func TestOpenWaitsForSettingsThatItMayNotStore(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, func(o *server.Options) {
		deny := &server.SubjectPermission{Deny: []string{"$KV.cronce_state.settings"}}
		o.Users = []*server.User{
			{Username: "all", Password: "p"},
			{Username: "some", Password: "p", Permissions: &server.Permissions{Publish: deny}},
		}
	})
	all := srv.JetStream(nats.UserInfo("all", "p"))
	open(t, all, kv.Options{})
	bucket, err := all.KeyValue(t.Context(), "cronce_state")
	if err == nil {
		err = bucket.Delete(t.Context(), "settings")
	}
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{})
	var once sync.Once
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) {
		if strings.Contains(string(p), "waiting for the settings") && strings.Contains(string(p), "cronce setup") {
			once.Do(func() { close(waits) })
		}
	}), nil))
	opened := make(chan error, 1)
	go func() {
		_, err := kv.Open(t.Context(), srv.JetStream(nats.UserInfo("some", "p")), kv.Options{Logger: log})
		opened <- err
	}()
	select {
	case <-waits:
	case err := <-opened:
		t.Fatalf("it did not wait: %v", err)
	}
	if _, err := space.Setup(t.Context(), all, kv.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// writer is a function that receives each line of a log.
type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }
