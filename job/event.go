package job

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// RegistryEvent is one change of the registry as a watcher sees it, in the order
// of the broker.
type RegistryEvent struct {
	// Name is the job's name; empty in a Ready or Settled event.
	Name string

	// Revision is the registry's last revision that was seen, this change included.
	// In a Ready or Settled event, every entry up to it has been seen.
	Revision uint64

	// Entry is the definition. Not set when Deleted, Ready, Settled or Err is.
	Entry Entry

	// Deleted says that the job was removed, at Time.
	Deleted bool
	Time    time.Time

	// Err says that the stored definition cannot be read. It disables this job
	// only.
	Err error

	// Ready closes the initial listing: all that was stored has been seen.
	Ready bool

	// Settled says that nothing that was written up to Revision is missing. Between
	// two of them it may be: a watch that catches up shows the last write of each job
	// only, in the place of that write.
	Settled bool
}

// NodeEvent is one change of the nodes bucket as a watcher sees it.
type NodeEvent struct {
	Name     string
	Revision uint64

	// Time is the broker's timestamp of the change.
	Time time.Time

	// Node is the record; not set when Gone, Ready or Err is.
	Node  Node
	Gone  bool
	Err   error
	Ready bool
}

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

// Exceptional lists the kinds that the events stream keeps, for the ledger's
// retention.
func Exceptional() []EventKind {
	return []EventKind{
		EventFenced, EventTakeover, EventRefused, EventFailed, EventMissed, EventSkipped, EventExpired, EventCancelled, EventAlert,
	}
}

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
	o := make(object, 0, 320+len(e.Error))
	o = o.open().number("v", e.V).text("kind", string(e.Kind)).time("time", e.Time).text("node", e.Node).
		textIf("id", e.ID).textIf("job", e.Job).numberIf("attempt", e.Attempt).revisionIf("fence", e.Fence).
		textIf("error", e.Error).textIf("peer", e.Peer).textIf("alert", string(e.Alert)).revisionIf("job_revision", e.JobRevision).
		numberIf("count", e.Count).timeIf("last", e.Last).trueIf("reopened", e.Reopened)
	return o.end(), nil
}

// DecodeEvent reads an event. Nothing is written back, so unknown members are let
// go; kinds may be unknown too.
func DecodeEvent(data []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(data, &e); err != nil {
		return Event{}, unreadable("event", err)
	}
	if e.V != Version {
		return Event{}, fmt.Errorf("%w: an event has v=%d, this program knows v=%d: upgrade it", ErrVersion, e.V, Version)
	}
	if err := e.bound(); err != nil {
		return Event{}, err
	}
	return e, nil
}

func (e *Event) bound() error {
	b := bounds{what: "event"}
	b.words("kind", string(e.Kind))
	b.words("alert", string(e.Alert))
	b.words("node", e.Node)
	b.words("peer", e.Peer)
	b.words("id", e.ID)
	if e.Job != "" {
		b.names("job", e.Job)
	}
	b.number("attempt", e.Attempt, 0, maxClaims)
	b.number("count", e.Count, 0, maxSlots)
	b.times("time", &e.Time, &e.Last)
	cutText(maxText, &e.Error)
	return b.err
}

// CheckSubject refuses the event if it was not published on NS.event.<kind>.<job> of
// its own kind and job, or its slot is another job's: so a login that may tell of one
// job tells of no other. Its errors wrap ErrInvalid and ErrContradicts.
func (e Event) CheckSubject(subject string) error {
	of, _, _ := strings.Cut(e.ID, ":")
	name := cmp.Or(e.Job, of, NoJob)
	tokens := strings.Split(subject, ".")
	if len(tokens) == 4 && tokens[1] == "event" && tokens[2] == string(e.Kind) && tokens[3] == name && (of == "" || of == name) {
		return nil
	}
	return fmt.Errorf("%w event: %w: it tells that %q is %q, of job %q, and was published on %q",
		ErrInvalid, ErrContradicts, clip(e.ID), clip(string(e.Kind)), clip(e.Job), clip(subject))
}

// NoJob is the last token of the subject of an event that is about no job.
const NoJob = "_"
