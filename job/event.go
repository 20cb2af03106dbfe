package job

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// EventKind says what happened to a slot. It is a token of the event's subject.
type EventKind string

// The exceptional kinds are also kept by the events stream; see Exceptional.
const (
	EventSucceeded EventKind = "succeeded"
	EventRetrying  EventKind = "retrying"
	EventFailed    EventKind = "failed"
	EventSkipped   EventKind = "skipped"
	EventMissed    EventKind = "missed"
	EventExpired   EventKind = "expired"
	EventCancelled EventKind = "cancelled"
	EventFenced    EventKind = "fenced"   // a node was declared dead
	EventTakeover  EventKind = "takeover" // a dead node's slot was claimed
	EventRefused   EventKind = "refused"  // a completion came too late
	EventAlert     EventKind = "alert"    // somebody is to be told, or a slot was reopened
)

// Event is the body of a message on <namespace>.event.<kind>.<job>. Events are
// told, not promised: the ledger is the truth.
type Event struct {
	V       int       `json:"v"`
	Kind    EventKind `json:"kind"`
	Time    time.Time `json:"time"`
	Node    string    `json:"node"`
	ID      string    `json:"id,omitempty"`
	Job     string    `json:"job,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Fence   uint64    `json:"fence,omitempty"`
	Error   string    `json:"error,omitempty"`

	// Peer is the other node: the one that was fenced, or whose slot was taken
	// over.
	Peer string `json:"peer,omitempty"`

	// Alert is the outcome that somebody is to be told of; empty in all events that
	// are no alerts. JobRevision is then the record's, Count and Last those of a
	// range of missed slots.
	Alert       State     `json:"alert,omitempty"`
	JobRevision uint64    `json:"job_revision,omitempty"`
	Count       int       `json:"count,omitempty"`
	Last        time.Time `json:"last,omitzero"`

	// Reopened says that somebody gave the slot a new start, although it may have
	// an outcome: a second one is then no contradiction.
	Reopened bool `json:"reopened,omitempty"`
}

// MarshalJSON writes the body: what encoding/json makes of the members, in a
// fraction of the time, since there is one for each slot.
func (e Event) MarshalJSON() ([]byte, error) {
	o := make(codec.Object, 0, 320+len(e.Error))
	o = o.Open().Number("v", e.V).Text("kind", string(e.Kind)).Time("time", e.Time).Text("node", e.Node).
		TextIf("id", e.ID).TextIf("job", e.Job).NumberIf("attempt", e.Attempt).RevisionIf("fence", e.Fence).
		TextIf("error", e.Error).TextIf("peer", e.Peer).TextIf("alert", string(e.Alert)).RevisionIf("job_revision", e.JobRevision).
		NumberIf("count", e.Count).TimeIf("last", e.Last).TrueIf("reopened", e.Reopened)
	return o.End(), nil
}

// UnmarshalJSON reads the body of an event. The kind may be one that this program does
// not know. It refuses a value of another format version with ErrVersion, and one that is
// out of bounds with ErrInvalid.
func (e *Event) UnmarshalJSON(data []byte) error {
	type members Event // without methods
	var m members
	if err := json.Unmarshal(data, &m); err != nil {
		return codec.Unreadable("event", err)
	}
	if m.V != codec.Version {
		return fmt.Errorf("%w: an event has v=%d, this program knows v=%d: upgrade it", ErrVersion, m.V, codec.Version)
	}
	*e = Event(m)
	return e.bound()
}

func (e *Event) bound() error {
	b := codec.Bounds{What: "event"}
	b.Words("kind", string(e.Kind))
	b.Words("alert", string(e.Alert))
	b.Words("node", e.Node)
	b.Words("peer", e.Peer)
	b.Words("id", e.ID)
	if e.Job != "" {
		b.Names("job", e.Job)
	}
	b.Number("attempt", e.Attempt, 0, codec.MaxClaims)
	b.Number("count", e.Count, 0, codec.MaxSlots)
	b.Times("time", &e.Time, &e.Last)
	codec.CutText(codec.MaxText, &e.Error)
	return b.Err
}
