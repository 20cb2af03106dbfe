package docs_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// lockCase is one question to a lock and its answer.
type lockCase struct {
	Name string          `json:"name"`
	Do   string          `json:"do"` // enter, leave, stood, call, over
	Lock json.RawMessage `json:"lock"`

	// Slot is as it would be in the lock: it enters for its node, or leaves by its node's work. Fresh: it has
	// not been claimed since it got its place, if it has one. Author wrote its record, unless that waits.
	Slot    json.RawMessage `json:"slot,omitempty"`
	Overlap job.Overlap     `json:"overlap,omitempty"`
	Places  int             `json:"places,omitempty"`
	Fresh   bool            `json:"fresh,omitempty"`
	Author  string          `json:"author,omitempty"`

	// Sequence is that of the entry that was put into the line, in stood.
	Sequence uint64 `json:"sequence,omitempty"`

	// Entry is called, or it is asked whether it is over. Record is that of its slot.
	Entry       json.RawMessage `json:"entry,omitempty"`
	Record      json.RawMessage `json:"record,omitempty"`
	Now         time.Time       `json:"now,omitzero"`
	Horizon     duration        `json:"horizon,omitempty"`
	ClockError  duration        `json:"clock_error,omitempty"`
	Implausible bool            `json:"implausible,omitempty"`

	Place     string          `json:"place,omitempty"`
	InWay     string          `json:"in_way,omitempty"`
	Displaces string          `json:"displaces,omitempty"`
	Over      bool            `json:"over,omitempty"`
	Next      json.RawMessage `json:"next,omitempty"`
}

var placeNames = map[core.AdmissionKind]string{
	core.AdmissionGranted: "held", core.AdmissionQueued: "waits", core.AdmissionSkipped: "skipped", core.AdmissionReplaced: "cancelled",
}

func TestLocks(t *testing.T) {
	t.Parallel()
	hold(t, "locks.json", answerLock)
}

func answerLock(t *testing.T, c lockCase) lockCase {
	t.Helper()
	c.Place, c.InWay, c.Displaces, c.Over, c.Next = "", "", "", false, nil
	l, err := core.DecodeLock(c.Lock)
	if err != nil {
		t.Fatal(err)
	}
	switch c.Do {
	case "enter":
		next, verdict := l.Enter(core.Entrant{LockSlot: c.slot(t), Policy: c.Overlap, Places: c.Places, Fresh: c.Fresh, Author: c.Author})
		c.Place, c.InWay, c.Displaces, c.Next = placeNames[verdict.Kind], id(verdict.InWay), id(verdict.Displaces), raw(t, next)
	case "leave":
		s := c.slot(t)
		c.Next = raw(t, l.Leave(s.Slot, s.Node))
	case "stood":
		c.Next = raw(t, l.Stood(c.Sequence))
	case "call":
		c.Next = raw(t, l.Call(c.entry(t), c.Now))
	case "over":
		v := core.View{Now: c.Now, Error: time.Duration(c.ClockError), Implausible: c.Implausible, Horizon: time.Duration(c.Horizon)}
		c.Over = l.IsOver(c.entry(t), record(t, c.Record), c.Overlap, v)
	default:
		t.Fatalf("nothing to do: %q", c.Do)
	}
	return c
}

func (c lockCase) slot(t *testing.T) core.LockSlot {
	t.Helper()
	l, err := core.DecodeLock([]byte(`{"v":1,"job":"report","holders":[` + string(c.Slot) + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return l.Holders[0]
}

func (c lockCase) entry(t *testing.T) core.Entry {
	t.Helper()
	e, err := core.DecodeEntry("report", c.Entry)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// id returns the ID of a slot, or "" of none.
func id(s job.Slot) string {
	if s == (job.Slot{}) {
		return ""
	}
	return s.ID()
}

// callCase is a slot whose messages are published because it was called from its job's line, or because
// it has ended without a worker.
type callCase struct {
	Name     string          `json:"name"`
	Record   json.RawMessage `json:"record"`
	Revision uint64          `json:"revision"`
	Chained  bool            `json:"chained,omitempty"`
	Messages []headers       `json:"messages"`
}

func TestCalls(t *testing.T) {
	t.Parallel()
	hold(t, "calls.json", answerCall)
}

func answerCall(t *testing.T, c callCase) callCase {
	t.Helper()
	c.Messages = nil
	r, err := exchange.DecodeRecord(c.Record)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range core.CallMessages(r, c.Revision, "a-1-1-x", c.Chained) {
		if m.InBulk() {
			t.Errorf("%s: the message of a called slot is in the bulk lane", c.Name)
		}
		c.Messages = append(c.Messages, single(m.Header()))
	}
	return c
}
