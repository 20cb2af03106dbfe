package docs_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// shardCase is the way of a split slot's shards, and of the record of the whole,
// through the ledger. Its messages are alike but for the shard that they name.
type shardCase struct {
	Name       string      `json:"name"`
	Headers    headers     `json:"headers"`
	Published  time.Time   `json:"published"`
	Horizon    duration    `json:"horizon"`
	Definition stored      `json:"definition"`
	Steps      []shardStep `json:"steps"`
}

type shardStep struct {
	// Slot is the one that the step is about: a shard, or in conclude the whole.
	Slot string    `json:"slot"`
	Node string    `json:"node"`
	Do   string    `json:"do"` // decide, complete, mark, conclude
	Now  time.Time `json:"now"`

	// Place is the lock's word on the whole slot, in decide.
	Place  *lockAnswer    `json:"place,omitempty"`
	Result *attemptResult `json:"result,omitempty"`

	// By is the operator that cancels the whole slot, in mark.
	By   string `json:"by,omitempty"`
	Wins uint64 `json:"wins,omitempty"`

	// Of names the slot whose record is written, at revision At.
	Action string          `json:"action,omitempty"`
	Of     string          `json:"of,omitempty"`
	At     *uint64         `json:"at,omitempty"`
	Record json.RawMessage `json:"record,omitempty"`
}

var shardActions = map[core.Action]string{
	core.Ack: "ack", core.Later: "later", core.Enter: "enter", core.Stand: "stand", core.WriteWhole: "whole", core.Start: "start", core.End: "end",
}

// shardLife is what stands in the ledger, by slot.
type shardLife struct {
	shardCase
	revision uint64
	ledger   map[job.Slot]claimed
}

func TestShards(t *testing.T) {
	t.Parallel()
	hold(t, "shards.json", answerShard)
}

func answerShard(t *testing.T, c shardCase) shardCase {
	t.Helper()
	life := shardLife{shardCase: c, ledger: map[job.Slot]claimed{}}
	for i := range c.Steps {
		s := &c.Steps[i]
		s.Action, s.Of, s.At, s.Record = "", "", nil, nil
		life.step(t, s)
	}
	return c
}

func (l *shardLife) step(t *testing.T, s *shardStep) {
	t.Helper()
	slot, err := job.ParseSlotID(s.Slot)
	if err != nil {
		t.Fatal(err)
	}
	whole, held := l.ledger[slot.Whole()], l.ledger[slot]
	switch s.Do {
	case "decide":
		step := core.Decide(l.delivery(t, slot), l.view(t, s, slot))
		s.Action = shardActions[step.Action]
		switch step.Action {
		case core.Start, core.End:
			l.write(t, s, step.Record, held.fence)
		case core.WriteWhole:
			l.write(t, s, step.Record, whole.fence)
		case core.Stand:
			if !step.Stored {
				l.write(t, s, step.Record, whole.fence)
			}
		}
	case "complete":
		l.write(t, s, core.Complete(held.record, held.fence, s.Now, time.Duration(l.Horizon), s.Result.result()), held.fence)
	case "mark":
		l.write(t, s, core.MarkWhole(whole.record, core.CancelRequest{By: s.By}.Cause()), whole.fence)
	case "conclude":
		shards := make([]job.Record, whole.record.Shards)
		for i := range shards {
			shards[i] = l.ledger[slot.WithShard(i+1, len(shards))].record
		}
		if !slices.ContainsFunc(shards, func(p job.Record) bool { return !p.State.Final() }) {
			l.write(t, s, core.Conclude(whole.record, shards, s.Node, s.Now), whole.fence)
		}
	default:
		t.Fatalf("no such thing to do: %q", s.Do)
	}
}

func (l *shardLife) delivery(t *testing.T, slot job.Slot) core.Delivery {
	t.Helper()
	m, err := core.ParseMessage(l.Headers.lists())
	if err != nil {
		t.Fatal(err)
	}
	m.Slot = slot
	return core.Delivery{Message: m, Queue: "default", Published: l.Published, Count: 1}
}

func (l *shardLife) view(t *testing.T, s *shardStep, slot job.Slot) core.View {
	t.Helper()
	e := l.Definition.entry(t)
	v := core.View{Now: s.Now, Self: s.Node, Horizon: time.Duration(l.Horizon), Handles: true, Entry: &e, Admission: s.Place.place(t)}
	if held, ok := l.ledger[slot]; ok {
		v.Record, v.Revision = &held.record, held.fence
	}
	v.Whole.Known = true
	if whole, ok := l.ledger[slot.Whole()]; ok {
		v.Whole.Record, v.Whole.Revision = &whole.record, whole.fence
	}
	return v
}

func (l *shardLife) write(t *testing.T, s *shardStep, r job.Record, at uint64) {
	t.Helper()
	r.Nonce = "(any)"
	s.Of, s.At, s.Record = r.Slot.ID(), &at, raw(t, r)
	if s.Wins <= l.revision {
		t.Fatalf("%s: the write of %s wins revision %d: want a larger one", l.Name, s.Of, s.Wins)
	}
	read, err := exchange.DecodeRecord(s.Record)
	if err != nil {
		t.Fatal(err)
	}
	l.revision = s.Wins
	l.ledger[r.Slot] = claimed{read, s.Wins}
}
