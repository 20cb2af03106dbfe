package kv_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/kv"
)

// oldBucket creates a bucket as nats.go does, and as older versions did.
func oldBucket(t *testing.T, js jetstream.JetStream, name string, age time.Duration) {
	t.Helper()
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: name, History: 1, TTL: age}); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_"+name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.AllowMsgTTL = strings.HasSuffix(name, "_jobs") || strings.HasSuffix(name, "_state")
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// rollup publishes a message that asks the server to remove all others of its stream.
func rollup(t *testing.T, js jetstream.JetStream, subject, what string) error {
	t.Helper()
	_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: nats.Header{"Nats-Rollup": {what}}, Data: []byte("{}")})
	return err
}

// With roll-ups, a login that may write one key could remove all others, including the
// settings and the watermark. Without them, a KV client can still read, write, delete and
// watch.
func TestBucketsRefuseRollupAndPurge(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	store := open(t, js, kv.Options{})
	if _, err := store.Nodes().Write(t.Context(), kvtest.Node("a", "a"), 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range layout.Streams("cronce") {
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		before := stream.CachedInfo().State.Msgs
		subject := strings.Replace(stream.CachedInfo().Config.Subjects[0], ">", "x", 1)
		for _, what := range []string{"all", "sub"} {
			if err := rollup(t, js, subject, what); err == nil && name != "cronce_timers" { // the timers need roll-ups: see docs/threat-model.md
				t.Errorf("%s takes a message that rolls up %s", name, what)
			}
		}
		bucket := strings.HasPrefix(name, "KV_")
		if err := stream.Purge(t.Context()); err == nil && bucket {
			t.Errorf("%s can be purged", name)
		}
		if info, err := stream.Info(t.Context()); err != nil || bucket && info.State.Msgs != before {
			t.Errorf("%s holds %d messages after %d, %v", name, info.State.Msgs, before, err)
		}
		if !bucket {
			continue
		}
		b, err := js.KeyValue(t.Context(), strings.TrimPrefix(name, "KV_"))
		if err != nil {
			t.Fatal(err)
		}
		revision, err := b.Create(t.Context(), "probe", []byte("1"))
		if err == nil {
			revision, err = b.Update(t.Context(), "probe", []byte("2"), revision)
		}
		if err == nil {
			err = b.Delete(t.Context(), "probe", jetstream.LastRevision(revision))
		}
		if err == nil {
			_, err = b.Create(t.Context(), "probe", []byte("3")) // replaces the marker
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if keys, err := b.Keys(t.Context()); err != nil || !slices.Contains(keys, "probe") {
			t.Errorf("%s: its keys are %q, %v", name, keys, err)
		}
		if err := b.Purge(t.Context(), "probe"); err == nil {
			t.Errorf("%s: a key of it can be purged", name)
		}
	}
}

// Nodes start with buckets that an older version created. Examine reports them. Setup
// changes them and keeps their data.
func TestSetupDeniesRollupInOldBuckets(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	oldBucket(t, js, "cronce_jobs", 0)
	store := open(t, js, kv.Options{})
	if _, err := store.Jobs().Write(t.Context(), kvtest.Definition("report", "a"), 0); err != nil {
		t.Fatal(err)
	}
	tolerated := func() (where []string) {
		_, v, err := kv.Examine(t.Context(), js, kv.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range v.Differences {
			if !d.Tolerated || d.Remove != "" {
				t.Errorf("%+v", d)
			}
			if d.Field == layout.FieldRollup {
				where = append(where, d.Where)
			}
		}
		return where
	}
	if found := tolerated(); !slices.Equal(found, []string{"bucket cronce_jobs"}) {
		t.Errorf("what an older version made: %q", found)
	}
	changes, err := space.Setup(t.Context(), js, kv.Options{})
	if err != nil || len(changes) == 0 || !strings.Contains(changes[0], "changed bucket cronce_jobs") {
		t.Errorf("setup: %q, %v", changes, err)
	}
	if found := tolerated(); len(found) > 0 {
		t.Errorf("after setup: %q", found)
	}
	if err := rollup(t, js, "$KV.cronce_jobs.report", "all"); err == nil {
		t.Error("the bucket takes a roll-up after setup")
	}
	if e, _, err := store.Jobs().Read(t.Context(), "report"); err != nil || e.Job.Name != "report" {
		t.Errorf("the definition reads %+v, %v", e.Job, err)
	}
}
