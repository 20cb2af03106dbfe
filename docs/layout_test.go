package docs_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// layoutCase is a namespace on a real server: what is made, and what the writes
// of the protocol look like to a subscriber.
type layoutCase struct {
	Namespace string          `json:"namespace"`
	Settings  json.RawMessage `json:"settings"`

	Streams  []map[string]any `json:"streams"`
	Consumer map[string]any   `json:"consumer"`
	Bulk     map[string]any   `json:"consumer_of_bulk"`
	Fired    map[string]any   `json:"consumer_of_timers"`
	Writes   []wireWrite      `json:"writes"`
	Event    string           `json:"event_subject"`
}

type wireWrite struct {
	What    string  `json:"what"`
	Subject string  `json:"subject"`
	Headers headers `json:"headers"`
	Body    string  `json:"body,omitempty"`
}

func TestLayout(t *testing.T) {
	t.Parallel()
	hold(t, "layout.json", answerLayout)
}

func answerLayout(t *testing.T, c layoutCase) layoutCase {
	t.Helper()
	server := natstest.Run(t)
	want, err := exchange.DecodeSettings(c.Settings)
	if err != nil {
		t.Fatal(err)
	}
	js := server.JetStream()
	store := kvtest.Open(t, js, kv.Options{Namespace: c.Namespace, Want: want})
	c.Streams = nil
	for _, name := range []string{"KV_%_state", "KV_%_jobs", "KV_%_nodes", "KV_%_ledger", "%_slots", "%_waiting", "%_timers", "%_events"} {
		stream, err := js.Stream(t.Context(), strings.Replace(name, "%", c.Namespace, 1))
		if err != nil {
			t.Fatal(err)
		}
		c.Streams = append(c.Streams, pick(t, stream.CachedInfo().Config, "name", "subjects", "retention", "storage", "discard",
			"max_age", "max_msgs_per_subject", "duplicate_window", "allow_direct", "allow_rollup_hdrs", "deny_delete", "deny_purge", "allow_msg_schedules", "allow_atomic", "num_replicas"))
	}
	queue := func(c jetstream.Consumer, err error) map[string]any {
		if err != nil {
			t.Fatal(err)
		}
		return pick(t, c.CachedInfo().Config, "durable_name", "filter_subject", "deliver_policy", "ack_policy", "ack_wait",
			"max_deliver", "max_ack_pending", "priority_policy", "priority_groups")
	}
	c.Consumer = queue(store.Slots().Queue(t.Context(), "default"))
	c.Bulk = queue(store.Slots().Queue(t.Context(), layout.BulkLane("default")))
	c.Fired = queue(store.Timers().Queue(t.Context(), "default"))
	c.Writes = writes(t, server.Conn(), store)
	c.Event = store.EventSubject(string(job.EventFailed), "report")
	return c
}

// pick takes out of a configuration what the protocol says of it, as it
// stands in the API's JSON. Absent: false, or none.
func pick(t *testing.T, config any, names ...string) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(raw(t, config), &all); err != nil {
		t.Fatal(err)
	}
	picked := map[string]any{}
	for _, name := range names {
		if v, ok := all[name]; ok {
			picked[name] = v
		}
	}
	return picked
}

// writes makes each kind of write once and listens to what is sent.
func writes(t *testing.T, nc *nats.Conn, store *kv.Store) []wireWrite {
	t.Helper()
	sent, err := nc.SubscribeSync(">")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	slot := job.NewSlot("report", time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC))
	record := job.Record{Slot: slot, Queue: "default", State: job.Running, Attempt: 1, Node: "a-1-1-x", Nonce: "a-1-1-x#1"}
	var all []wireWrite
	step := func(what string, do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		all = append(all, hear(t, sent, what))
	}
	revision := uint64(0)
	step("create a record", func() (err error) { revision, err = store.Ledger().Write(t.Context(), record, 0); return err })
	record.State, record.Nonce = job.Succeeded, "a-1-1-x#2"
	step("update it", func() error { _, err := store.Ledger().Write(t.Context(), record, revision); return err })
	definition := plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}, Owner: "file", Node: "a-1-1-x", Nonce: "a-1-1-x#3"}
	step("create a definition", func() (err error) { revision, err = store.Jobs().Write(t.Context(), definition, 0); return err })
	step("delete it", func() error { return store.Jobs().Delete(t.Context(), "report", revision) })
	step("publish a slot", func() error {
		_, err := store.Slots().Publish(t.Context(), "default", core.Message{Slot: slot, JobRevision: 1, Node: "a-1-1-x", Due: slot.At}, []byte(`{"n":1}`))
		return err
	})
	step("publish a triggered run", func() error {
		m := core.Message{Slot: job.Slot{Job: "report", Token: "k1"}, JobRevision: 1, Node: "a-1-1-x"}
		_, err := store.Slots().Publish(t.Context(), "default", m, []byte(`{"n":1}`))
		return err
	})
	step("put a slot into its job's line", func() error {
		_, err := store.Lines().Put(t.Context(), core.Entry{Slot: slot, At: slot.At, OnTime: true}, 4711)
		return err
	})
	step("set a timer", func() error {
		m := core.Message{Slot: job.Slot{Job: "report", Token: "a b"}, JobRevision: 1, Node: "a-1-1-x", Due: slot.At.AddDate(100, 0, 0).Add(500 * time.Millisecond)}
		_, err := store.Timers().Set(t.Context(), stream.Timer{Message: m, Queue: "default", Payload: []byte(`{"n":1}`)}, 0)
		return err
	})
	return all
}

// hear takes the next message to a stream of the namespace; a nonce that is drawn
// is blotted out.
func hear(t *testing.T, sent *nats.Subscription, what string) wireWrite {
	t.Helper()
	for {
		m, err := sent.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatalf("%s: nothing was sent: %v", what, err)
		}
		if !strings.HasPrefix(m.Subject, "$KV.") && !strings.Contains(m.Subject, ".slot.") && !strings.Contains(m.Subject, ".wait.") && !strings.Contains(m.Subject, ".timer.") {
			continue
		}
		h := single(m.Header)
		if h["Cronce-Nonce"] != "" {
			h["Cronce-Nonce"] = "(any)"
		}
		return wireWrite{what, m.Subject, h, string(m.Data)}
	}
}
