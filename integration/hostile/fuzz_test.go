package hostile_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/check/doctor"
	"github.com/cronce-io/cronce/internal/check/verify"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// broker holds one value of each kind. If a value cannot be decoded, reading it is an error.
type broker struct {
	record     job.Record
	lock       core.Lock
	entry      plans.Entry
	node       exchange.Node
	event      job.Event
	message    core.Message
	at         time.Time        // when all values were written
	sent       int              // messages that were published
	unreadable map[string]error // by kind
	answer     []byte           // of a node that is asked for output
}

func newBroker(record, lock, definition, node, event, slot []byte, at time.Time) *broker {
	b := &broker{at: at, unreadable: map[string]error{}, answer: event}
	note := func(kind string, err error) {
		if err != nil {
			b.unreadable[kind] = err
		}
	}
	var err error
	b.record, err = exchange.DecodeRecord(record)
	note("record", err)
	b.lock, err = core.DecodeLock(lock)
	note("lock", err)
	b.entry, err = plans.DecodeEntry(definition, 5, at)
	note("definition", err)
	b.node, err = exchange.DecodeNode(node)
	note("node", err)
	b.event, err = exchange.DecodeEvent(event)
	note("event", err)
	b.message, err = core.ParseMessage(map[string][]string{core.HeaderSlot: {string(slot)}})
	note("message", err)
	return b
}

func one[T any](value T, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) { yield(value, err) }
}

type ledger struct{ *broker }

func (l ledger) Read(_ context.Context, s job.Slot) (job.Record, uint64, error) {
	switch {
	case l.unreadable["record"] != nil:
		return job.Record{}, 7, l.unreadable["record"]
	case l.record.Slot != s && l.record.Slot.Whole() != s:
		return job.Record{}, 0, job.ErrNotFound
	}
	return l.record, 7, nil
}

func (l ledger) Write(context.Context, job.Record, uint64) (uint64, error) {
	return 0, errors.New("nothing is written here")
}

func (l ledger) List(context.Context, kv.ListFilter) iter.Seq2[kv.LedgerEntry, error] {
	return one(kv.LedgerEntry{Record: l.record, Revision: 7, Time: l.at}, l.unreadable["record"])
}

func (l ledger) Newest(ctx context.Context, _ string) iter.Seq2[kv.LedgerEntry, error] {
	return l.List(ctx, kv.ListFilter{})
}

func (l ledger) Records(context.Context, []job.Slot) (map[job.Slot]kv.LedgerEntry, error) {
	if l.unreadable["record"] != nil {
		return nil, nil
	}
	return map[job.Slot]kv.LedgerEntry{l.record.Slot: {Record: l.record, Revision: 7, Time: l.at}}, nil
}

func (l ledger) Changes(context.Context, *wire.Cursor) iter.Seq2[kv.Change, error] {
	return one(kv.Change{Slot: l.record.Slot, Revision: 7, Time: l.at, State: l.record.State, Node: l.record.Node, RetryAt: l.record.RetryAt}, nil)
}

type locks struct{ *broker }

func (l locks) Read(context.Context, string) (core.Lock, uint64, error) {
	return l.lock, 7, l.unreadable["lock"]
}

func (l locks) Changes(context.Context, *wire.Cursor) iter.Seq2[kv.LockChange, error] {
	return one(kv.LockChange{Lock: l.lock, Time: l.at}, nil)
}

type jobs struct{ *broker }

func (j jobs) Read(context.Context, string) (plans.Entry, uint64, error) {
	return j.entry, 5, j.unreadable["definition"]
}

func (j jobs) Write(context.Context, plans.Definition, uint64) (uint64, error) {
	return 0, errors.New("nothing is written here")
}

func (j jobs) Delete(context.Context, string, uint64) error { return nil }

func (j jobs) List(context.Context) ([]plans.Entry, error) {
	if j.unreadable["definition"] != nil {
		return nil, nil
	}
	return []plans.Entry{j.entry}, nil
}

type nodes struct{ *broker }

func (n nodes) List(context.Context) ([]exchange.NodeEvent, error) {
	return []exchange.NodeEvent{{Name: "a", Revision: 3, Time: n.at, Node: n.node, Err: n.unreadable["node"]}}, nil
}

type handlers struct{}

func (handlers) Latest(context.Context, []string) (map[string]exchange.Handlers, error) {
	return nil, nil
}

type slots struct{ *broker }

func (s slots) Waiting(context.Context, stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return one(stream.WaitingSlot{Message: s.message, Queue: "default", Sequence: 3, Published: s.at}, s.unreadable["message"])
}

func (s slots) Publish(context.Context, string, core.Message, []byte) (bool, error) {
	s.sent++
	return false, nil
}

func (s slots) Put(ctx context.Context, queue string, m core.Message, payload []byte) (bool, error) {
	return s.Publish(ctx, queue, m, payload)
}

func (s slots) PutAt(ctx context.Context, queue string, m core.Message, payload []byte) (uint64, bool, error) {
	folded, err := s.Publish(ctx, queue, m, payload)
	return 3, folded, err
}

func (s slots) At(context.Context, uint64) (stream.WaitingSlot, error) {
	return stream.WaitingSlot{Message: s.message, Queue: "default", Sequence: 3, Published: s.at}, s.unreadable["message"]
}

type none struct{}

func (none) Waiting(context.Context, stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return func(func(stream.WaitingSlot, error) bool) {}
}

func (none) Read(context.Context, job.Slot) (stream.Timer, uint64, error) {
	return stream.Timer{}, 0, job.ErrNotFound
}

func (none) Set(context.Context, stream.Timer, uint64) (uint64, error)             { return 0, nil }
func (none) Latest(context.Context, []job.Slot) (map[job.Slot]stream.Timer, error) { return nil, nil }
func (none) Cancel(context.Context, job.Slot) error                                { return nil }

// MaySet says that the login may set timers itself.
func (none) MaySet(string) bool { return true }

type mark struct{}

func (mark) Read(context.Context) (exchange.Watermark, uint64, error) {
	return exchange.Watermark{Time: now, Revision: 5}, 9, nil
}

type fleet struct{ slots }

func (f fleet) Events(context.Context, kv.EventFilter) iter.Seq2[job.Event, error] {
	return one(f.event, f.unreadable["event"])
}

func (fleet) StoreEvent(context.Context, job.Event) error { return nil }
func (fleet) EmitAndFlush(job.Event) error                { return nil }

func (f fleet) AskOutput(context.Context, string, job.Slot, bool) (exchange.OutputAnswer, error) {
	return exchange.DecodeOutputAnswer(f.answer)
}

func (f fleet) AskLater(context.Context, string, []byte) ([]byte, error) { return f.answer, nil }

func (fleet) AskCancel(context.Context, string, core.CancelRequest) (core.CancelAnswer, error) {
	return core.CancelAnswer{}, job.ErrUnknown
}

// Whatever is on the broker, its readers neither panic nor run without end, what they find can be printed as JSON, and
// the sweep and verify publish a bounded number of messages.
func FuzzReaders(f *testing.F) {
	const (
		record     = `{"v":1,"id":"report:2026-11-21T07:00:00Z","queue":"default","state":"running","attempt":1,"attempts":[{"attempt":1,"node":"a","started":"2026-11-21T07:00:00Z"}],"max_attempts":3,"node":"a","nonce":"n","published":"2026-11-21T07:00:00Z"}`
		whole      = `{"v":1,"id":"report:2026-11-21T07:00:00Z","queue":"default","state":"running","attempt":0,"node":"","nonce":"n","published":"2026-11-21T07:00:00Z","shards":256}`
		missed     = `{"v":1,"id":"report:m.0001-01-01T00:00:00Z","queue":"default","state":"missed","node":"a","nonce":"n","count":2147483647,"last":"9999-12-31T23:59:59Z"}`
		lock       = `{"v":1,"job":"report","holders":[{"id":"report:2026-11-21T07:00:00Z","at":"2026-11-21T07:00:00Z","on_time":true,"since":"2026-11-21T07:00:00Z"}],"waiting":[{"id":"report:@k","at":"2026-11-21T08:00:00Z","since":"2026-11-21T08:00:00Z"}],"nonce":"n"}`
		definition = `{"v":1,"job":{"name":"report","queue":"default","attempts":3,"backoff":"1s","max_backoff":"1m0s","overlap":"skip","catch_up":"latest","catch_up_max":100,"plan":{"schedule":"@hourly","timezone":"UTC","dst_gap":"after","dst_overlap":"first","shards":2}},"since":"2026-11-20T00:00:00Z","past":[{"from":"2026-11-19T00:00:00Z","plan":{"schedule":"* * * * *","timezone":"UTC","dst_gap":"after","dst_overlap":"first"}}],"owner":"file","node":"a","nonce":"n"}`
		node       = `{"v":1,"node":"a","state":"alive","started":"2026-11-21T06:00:00Z","lease":"20s","producer":true,"worker":true,"queues":["default"],"handlers":["report"],"running":1,"clock_offset":"0s","clock_error":"0s","tzdata":"2026b","version":"v1","nonce":"n"}`
		event      = `{"v":1,"kind":"alert","time":"2026-11-21T08:00:00Z","node":"a","id":"report:2026-11-21T07:00:00Z","job":"report","alert":"failed","count":2147483647,"last":"9999-12-31T23:59:59Z"}`
		countless  = `{"v":1,"id":"report:2026-11-21T07:00:00Z","queue":"default","state":"running","attempt":0,"node":"","nonce":"n","shards":9223372036854775807}`
		answer     = `{"v":1,"runs":true,"attempt":1,"fence":7,"progress":{"done":1,"time":"9999-12-31T23:59:59-01:00"},"output":"\u001b[2J","to":9223372036854775807}`
	)
	f.Add([]byte(record), []byte(lock), []byte(definition), []byte(node), []byte(answer), []byte("report:2026-11-21T07:00:00Z"), int64(-time.Hour))
	for _, r := range []string{record, whole, missed, countless} {
		for _, slot := range []string{"report:2026-11-21T07:00:00Z", "report:@k#1of256", "report:m.2026-11-21T07:00:00Z"} {
			f.Add([]byte(r), []byte(lock), []byte(definition), []byte(node), []byte(event), []byte(slot), int64(-time.Hour))
		}
	}
	f.Fuzz(func(t *testing.T, record, lock, definition, node, event, slot []byte, ago int64) {
		b := newBroker(record, lock, definition, node, event, slot, now.Add(time.Duration(ago)))
		ctx := t.Context()
		subject := b.record.Slot
		if subject.Job == "" {
			subject = job.NewSlot("report", now)
		}

		s := sweep.New(sweep.Config{
			Node: "me", Ledger: ledger{b}, Locks: locks{b}, Slots: slots{b}, Timers: none{}, Nodes: nodes{b}, Registry: jobs{b},
			After: func(string) []plans.Entry { return nil }, Now: func() time.Time { return now }, Lease: 20 * time.Second, Horizon: 24 * time.Hour,
			Plausible: func() error { return nil }, Seen: &sweep.Seen{}, Late: func() []plans.Entry { return nil }, Offered: func(job.Slot) {}, Rewound: func(job.Event) {},
		})
		_ = s.Pass(ctx, []exchange.NodeEvent{{Name: "a"}})
		const most = job.MaxShards * (core.MaxLockWaiting + 2) // for each shard of each slot in a lock
		if b.sent > most {
			t.Errorf("the sweep publishes %d messages, want at most %d", b.sent, most)
		}

		c := client.Attach(attach.Parts{
			Jobs: jobs{b}, Nodes: nodes{b}, Handlers: handlers{}, Ledger: ledger{b}, Slots: slots{b}, Timers: none{}, Watermark: mark{}, Locks: locks{b}, Fleet: fleet{slots{b}},
			Settings: job.Settings{}.WithDefaults(), Operator: "me", Now: func(context.Context) (time.Time, error) { return now, nil },
		})
		for _, slot := range []job.Slot{subject, b.message.Slot} {
			if slot.Job == "" {
				continue
			}
			story, err := c.Explain(ctx, slot.ID())
			printable(t, story, err)
			found, err := c.Slot(ctx, slot.ID())
			printable(t, found, err)
			live, err := c.Running(ctx, slot.ID())
			printable(t, live, err)
		}
		shown, err := c.Job(ctx, "report")
		printable(t, shown.Last, err)
		listed, err := c.ListSlots(ctx, client.SlotFilter{})
		printable(t, listed, err)
		all, err := c.Jobs(ctx, client.JobFilter{Now: now})
		printable(t, all, err)
		members, err := c.Nodes(ctx, client.NodeFilter{})
		printable(t, members, err)

		entries, _ := jobs{b}.List(ctx)
		events, _ := nodes{b}.List(ctx)
		check := verify.New(verify.Config{
			From: now.Add(-time.Hour), To: now, Now: now, Settings: job.Settings{}.WithDefaults(), Watermark: exchange.Watermark{Time: now, Revision: 9}, Nodes: events,
		}, entries)
		if b.unreadable["event"] == nil {
			check.Event(b.event)
		}
		if b.unreadable["message"] == nil {
			check.Waiting(b.message, b.at)
		}
		if b.unreadable["record"] == nil {
			check.Record(b.record, b.at)
		}
		for p := range check.Problems() {
			_, messages, _ := check.Offer(p, "me")
			if len(messages) > job.MaxShards {
				t.Errorf("verify offers %d messages, want at most %d", len(messages), job.MaxShards)
			}
			if p.Beyond == "" && len(messages) == 0 {
				t.Errorf("verify offers nothing for %+v, and does not say why", p)
			}
		}
		printable(t, check.Report(), nil)

		facts := doctor.Facts{
			Namespace: "cronce", Survey: space.Survey{Settings: job.Settings{}.WithDefaults()}, Now: now, Local: now, Nodes: events, Jobs: entries,
			Watermark: exchange.Watermark{Time: now, Revision: 5}, RegistryRevision: 5, Ended: map[job.Slot]time.Time{},
		}
		if b.unreadable["record"] == nil {
			facts.Open = []kv.LedgerEntry{{Record: b.record, Revision: 7, Time: b.at}}
		}
		if b.unreadable["lock"] == nil {
			facts.Locks = []core.Lock{b.lock}
		}
		printable(t, doctor.Check(facts), nil)
	})
}

// printable checks that what was found can be printed as JSON. After an error there is nothing to print.
func printable(t *testing.T, found any, err error) {
	t.Helper()
	if err != nil {
		return
	}
	if _, err := json.Marshal(found); err != nil {
		t.Errorf("%T: %v", found, err)
	}
}
