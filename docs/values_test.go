package docs_test

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

type nameCase struct {
	ID      string    `json:"id,omitempty"`
	Key     string    `json:"key,omitempty"`
	Job     string    `json:"job,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Token   string    `json:"token,omitempty"`
	Range   bool      `json:"range,omitempty"`
	Shard   int       `json:"shard,omitempty"`
	Shards  int       `json:"shards,omitempty"`
	TraceID string    `json:"trace_id,omitempty"`
	Refused string    `json:"refused,omitempty"`
}

// A case is asked about by its ID, or by its key where it has no ID.
func TestSlotNames(t *testing.T) {
	t.Parallel()
	hold(t, "names.json", answerName)
}

func answerName(t *testing.T, c nameCase) nameCase {
	t.Helper()
	slot, err := job.ParseSlotID(c.ID)
	if c.ID == "" {
		slot, err = job.ParseSlotKey(c.Key)
	}
	if err != nil {
		return nameCase{ID: c.ID, Key: c.Key, Refused: refusal(t, err)}
	}
	if back, err := job.ParseSlotKey(slot.Key()); err != nil || back != slot {
		t.Errorf("key %s reads %+v, %v", slot.Key(), back, err)
	}
	trace := slot.TraceID(job.DefaultNamespace)
	return nameCase{
		ID: slot.ID(), Key: slot.Key(), Job: slot.Job, At: slot.At, Token: slot.Token, Range: slot.Range, Shard: slot.Shard, Shards: slot.Shards, TraceID: hex.EncodeToString(trace[:]),
	}
}

type messageCase struct {
	Headers headers `json:"headers"`

	// Subject is what it was published on. Absent: that it is one of its slot's job.
	Subject     string    `json:"subject,omitempty"`
	Slot        string    `json:"slot,omitempty"`
	JobRevision uint64    `json:"job_revision,omitempty"`
	Node        string    `json:"node,omitempty"`
	Due         time.Time `json:"due,omitzero"`
	CaughtUp    bool      `json:"caught_up,omitempty"`
	Chained     bool      `json:"chained,omitempty"`
	Event       bool      `json:"event,omitempty"`
	Backfill    bool      `json:"backfill,omitempty"`
	Missed      int       `json:"missed,omitempty"`
	MissedLast  time.Time `json:"missed_last,omitzero"`
	Offer       int       `json:"offer,omitempty"`
	Traceparent string    `json:"traceparent,omitempty"`
	Impossible  string    `json:"impossible,omitempty"` // what Cronce-Refused says
	Bulk        bool      `json:"bulk,omitempty"`       // it is published in the bulk lane

	// Written says that the message is written with just these headers.
	Written bool   `json:"written"`
	Refused string `json:"refused,omitempty"`
}

func TestSlotMessages(t *testing.T) {
	t.Parallel()
	hold(t, "messages.json", answerMessage)
}

func answerMessage(t *testing.T, c messageCase) messageCase {
	t.Helper()
	m, err := core.ParseMessage(c.Headers.lists())
	if err == nil && c.Subject != "" {
		err = m.CheckSubject(c.Subject)
	}
	if err != nil {
		return messageCase{Headers: c.Headers, Subject: c.Subject, Refused: refusal(t, err)}
	}
	return messageCase{
		Headers: c.Headers, Subject: c.Subject, Slot: m.Slot.ID(), JobRevision: m.JobRevision, Node: m.Node, Due: m.Due, CaughtUp: m.CaughtUp, Chained: m.Chained, Event: m.Event, Backfill: m.Backfill,
		Missed: m.Missed, MissedLast: m.MissedLast, Offer: m.Offer, Impossible: m.Refused, Bulk: m.InBulk(), Traceparent: m.Traceparent, Written: reflect.DeepEqual(single(m.Header()), c.Headers),
	}
}

type valueCase struct {
	Name  string          `json:"name"`
	Kind  string          `json:"kind"`
	Value json.RawMessage `json:"value"`

	// Time is the entry's, of a definition.
	Time time.Time `json:"time,omitzero"`

	// Unknown are the members that have no meaning and are kept; Written is what
	// a program that read the value writes again, where that is not the same.
	Unknown []string        `json:"unknown,omitempty"`
	Written json.RawMessage `json:"written,omitempty"`
	Refused string          `json:"refused,omitempty"`
}

func TestStoredValues(t *testing.T) {
	t.Parallel()
	hold(t, "values.json", answerValue)
}

func answerValue(t *testing.T, c valueCase) valueCase {
	t.Helper()
	read, extra, err := decodeValue(t, c.Kind, c.Value, c.Time)
	c.Unknown, c.Written, c.Refused = slices.Sorted(maps.Keys(extra)), nil, refusal(t, err)
	if err != nil {
		return c
	}
	if again := raw(t, read); !sameJSON(t, again, c.Value) {
		c.Written = again
	}
	return c
}

func decodeValue(t *testing.T, kind string, data []byte, at time.Time) (value any, unknown codec.Extra, err error) {
	t.Helper()
	switch kind {
	case "settings":
		s, err := exchange.DecodeSettings(data)
		return s, s.Extra, err
	case "definition":
		e, err := plans.DecodeEntry(data, 7, at)
		return e.Definition, e.Extra, err
	case "node":
		n, err := exchange.DecodeNode(data)
		return n, n.Extra, err
	case "handlers":
		h, err := exchange.DecodeHandlers(data)
		return h, h.Extra, err
	case "record":
		r, err := exchange.DecodeRecord(data)
		return r, r.Extra, err
	case "watermark":
		w, err := exchange.DecodeWatermark(data)
		return w, w.Extra, err
	case "lock":
		l, err := core.DecodeLock(data)
		return l, l.Extra, err
	case "entry": // of the line of the job "report"
		e, err := core.DecodeEntry("report", data)
		return e, nil, err
	case "event":
		e, err := exchange.DecodeEvent(data)
		return e, nil, err
	}
	t.Fatalf("no such kind of value: %q", kind)
	return nil, nil, nil
}

type definitionCase struct {
	Job json.RawMessage `json:"job"`

	// Canonical is the text that is hashed.
	Canonical string `json:"canonical"`
	Hash      string `json:"hash"`
}

func TestDefinitionHashes(t *testing.T) {
	t.Parallel()
	hold(t, "definitions.json", answerDefinition)
}

func answerDefinition(t *testing.T, c definitionCase) definitionCase {
	t.Helper()
	var j job.Job
	if err := json.Unmarshal(c.Job, &j); err != nil {
		t.Fatal(err)
	}
	hash, err := j.Hash()
	if err != nil {
		t.Fatal(err)
	}
	c.Canonical, c.Hash = string(raw(t, j)), hash
	return c
}
