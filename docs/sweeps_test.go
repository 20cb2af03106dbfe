package docs_test

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// sweepCase is one look for slots that should have moved, at Now: what stands on the
// broker, and what the sweep publishes.
type sweepCase struct {
	Name    string    `json:"name"`
	Now     time.Time `json:"now"`
	Lease   duration  `json:"lease"`
	Horizon duration  `json:"horizon"`

	// Alive are the nodes that are. Definitions are the jobs that there are.
	Alive       []string `json:"alive,omitempty"`
	Definitions []stored `json:"definitions,omitempty"`

	// Records are the ledger's, Locks the jobs' locks, Lines the entries of their lines, InStream the slots that have a
	// message. HandedOut are messages that a producer of the sweeping node has sent.
	Records   []standing  `json:"records,omitempty"`
	Locks     []standing  `json:"locks,omitempty"`
	Lines     []lineEntry `json:"lines,omitempty"`
	InStream  []string    `json:"in_stream,omitempty"`
	HandedOut []published `json:"handed_out,omitempty"`

	Messages []published `json:"messages,omitempty"`
}

// standing is a value as it stands in a bucket.
type standing struct {
	Revision uint64          `json:"revision"`
	Time     time.Time       `json:"time"`
	Value    json.RawMessage `json:"value"`
}

// lineEntry is an entry in the line of the job "report".
type lineEntry struct {
	Sequence uint64          `json:"sequence"`
	Value    json.RawMessage `json:"value"`
}

func TestSweeps(t *testing.T) {
	t.Parallel()
	hold(t, "sweeps.json", answerSweep)
}

func answerSweep(t *testing.T, c sweepCase) sweepCase {
	t.Helper()
	w := &swept{t: t, sweepCase: &c}
	s := sweep.New(sweep.Config{
		Node: "a-1-1-x", Ledger: w, Locks: sweptLocks{w}, Lines: sweptLines{w}, Slots: w, Timers: nothing{}, Nodes: nothing{}, Registry: sweptRegistry{w}, After: w.after,
		Now: func() time.Time { return c.Now }, Plausible: func() error { return nil }, Lease: time.Duration(c.Lease), Horizon: time.Duration(c.Horizon),
		Seen: &sweep.Seen{}, Late: func() []plans.Entry { return nil }, Offered: func(job.Slot) {}, Rewound: func(job.Event) {},
	})
	for _, h := range c.HandedOut {
		m, err := core.ParseMessage(h.Headers.lists())
		if err != nil {
			t.Fatal(err)
		}
		s.Published(h.Queue, m)
	}
	var live []exchange.NodeEvent
	for _, node := range c.Alive {
		live = append(live, exchange.NodeEvent{Name: node})
	}
	c.Messages = nil
	if err := s.Pass(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(c.Messages, func(a, b published) int {
		return cmp.Compare(a.Headers[core.HeaderMsgID], b.Headers[core.HeaderMsgID])
	})
	return c
}

// swept is all that a sweep sees of a broker.
type swept struct {
	t *testing.T
	*sweepCase
	mu sync.Mutex // of Messages
}

func (w *swept) Changes(context.Context, *wire.Cursor) iter.Seq2[kv.Change, error] {
	return func(yield func(kv.Change, error) bool) {
		for _, s := range w.Records {
			r := record(w.t, s.Value)
			c := kv.Change{Slot: r.Slot, Revision: s.Revision, Time: s.Time, State: r.State, RetryAt: r.RetryAt}
			if r.State == job.Running {
				c.Node = r.Node
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

func (w *swept) Read(_ context.Context, slot job.Slot) (job.Record, uint64, error) {
	for _, s := range w.Records {
		if r := record(w.t, s.Value); r.Slot == slot {
			return r, s.Revision, nil
		}
	}
	return job.Record{}, 0, job.ErrNotFound
}

type sweptLocks struct{ *swept }

func (w sweptLocks) Changes(context.Context, *wire.Cursor) iter.Seq2[kv.LockChange, error] {
	return func(yield func(kv.LockChange, error) bool) {
		for _, s := range w.Locks {
			l, err := core.DecodeLock(s.Value)
			if err != nil {
				w.t.Fatal(err)
			}
			if !yield(kv.LockChange{Lock: l, Time: s.Time}, nil) {
				return
			}
		}
	}
}

type sweptLines struct{ *swept }

func (w sweptLines) Read(_ context.Context, name string, from uint64) (entries []core.Entry, err error) {
	for _, l := range w.Lines {
		e, err := core.DecodeEntry(name, l.Value)
		if err != nil {
			w.t.Fatal(err)
		}
		if e.Sequence = l.Sequence; l.Sequence >= from {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

func (w sweptLines) Purge(context.Context, string, uint64) error { return nil }

func (w sweptLines) Counts(context.Context) (map[string]uint64, error) {
	counts := map[string]uint64{}
	if len(w.Lines) > 0 {
		counts["report"] = uint64(len(w.Lines))
	}
	return counts, nil
}

func (w *swept) Waiting(context.Context, stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return func(yield func(stream.WaitingSlot, error) bool) {
		for _, id := range w.InStream {
			slot, err := job.ParseSlotID(id)
			if err != nil {
				w.t.Fatal(err)
			}
			if !yield(stream.WaitingSlot{Message: core.Message{Slot: slot}}, nil) {
				return
			}
		}
	}
}

func (w *swept) Publish(_ context.Context, queue string, m core.Message, payload []byte) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Messages = append(w.Messages, published{queue, single(m.Header()), string(payload)})
	return false, nil
}

func (w *swept) after(name string) (next []plans.Entry) {
	for _, d := range w.Definitions {
		if e := d.entry(w.t); slices.Contains(e.Job.After, name) {
			next = append(next, e)
		}
	}
	return next
}

type sweptRegistry struct{ *swept }

func (w sweptRegistry) Read(_ context.Context, name string) (plans.Entry, uint64, error) {
	for _, d := range w.Definitions {
		if e := d.entry(w.t); e.Job.Name == name {
			return e, e.Revision, nil
		}
	}
	return plans.Entry{}, 0, job.ErrNotFound
}

// nothing is what a pass does not ask for, or finds empty: the nodes and the timers.
type nothing struct{}

func (nothing) List(context.Context) ([]exchange.NodeEvent, error) { return nil, nil }

func (nothing) Waiting(context.Context, stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return func(func(stream.WaitingSlot, error) bool) {}
}
