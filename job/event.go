package job

import (
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// EventKind is what an event reports. It is a token of the event's subject.
type EventKind string

// The events stream keeps all kinds but EventSucceeded, EventRetrying, EventProgress and
// EventOutput.
const (
	EventSucceeded EventKind = "succeeded" // the first seven: a slot has reached that state
	EventRetrying  EventKind = "retrying"
	EventFailed    EventKind = "failed"
	EventSkipped   EventKind = "skipped"
	EventMissed    EventKind = "missed"
	EventExpired   EventKind = "expired"
	EventCancelled EventKind = "cancelled"
	EventFenced    EventKind = "fenced"   // a node was declared dead
	EventTakeover  EventKind = "takeover" // a slot was claimed whose owner was dead, or did not hold its claim
	EventRefused   EventKind = "refused"  // a completion was refused: the claim was lost
	EventAlert     EventKind = "alert"    // an alert is to be sent (Alert is set), a slot was reopened (Reopened is set), or an operator should read Error
	EventProgress  EventKind = "progress" // what Run.Progress was given, at most once a second
	EventOutput    EventKind = "output"   // a part of a running attempt's output; sent only while it is asked for
	EventOrdered   EventKind = "ordered"  // an operator gave an order, and it was carried out
)

// Event is the body of a message on <namespace>.event.<kind>.<job>. Events may be lost; the
// slot's Record is what counts.
type Event struct {
	V    int       `json:"v"` // the format version
	Kind EventKind `json:"kind"`

	// Time is when what the event reports happened, by the broker's clock as a node estimated it. In
	// an alert about an outcome, it is when the slot ended. Node is the node that sent the event.
	Time time.Time `json:"time"`
	Node string    `json:"node"`

	// ID is the slot's ID, and Attempt and Fence are those of the attempt. They are empty if
	// the event is not about a slot.
	ID      string `json:"id,omitempty"`
	Job     string `json:"job,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Fence   uint64 `json:"fence,omitempty"`
	Error   string `json:"error,omitempty"`

	// Peer is the node that was fenced, or whose slot was taken over.
	Peer string `json:"peer,omitempty"`

	// Alert is what the alert is about: an outcome, AlertLate, AlertRecovered or AlertHeartbeat.
	// It is empty in events that are not to be sent as alerts. In an alert, JobRevision, Count
	// and Last are those of the slot's record.
	Alert       State     `json:"alert,omitempty"`
	JobRevision uint64    `json:"job_revision,omitempty"`
	Count       int       `json:"count,omitempty"`
	Last        time.Time `json:"last,omitzero"`

	// Output is, in an alert, the end of what the slot's last attempt wrote. In an EventOutput
	// it is what the attempt wrote from byte From to byte To.
	Output string `json:"output,omitempty"`

	// Revision is that of the slot's record in the ledger, and Since the ID of the slot that
	// failed, or was late, before the job recovered. They are set in alerts.
	Revision uint64 `json:"revision,omitempty"`
	Since    string `json:"since,omitempty"`

	// Order is set in an EventOrdered: create, update, remove, pause, resume, release,
	// trigger, backfill, retry or cancel. Node is then the operator that gave the order,
	// JobRevision the job's revision after the order, and Count the number of ordered slots.
	Order string `json:"order,omitempty"`

	// Reopened is true if an operator had the slot run again. It may then get a second
	// outcome.
	Reopened bool `json:"reopened,omitempty"`

	// Progress is the attempt's progress, in an EventProgress.
	Progress *Progress `json:"progress,omitempty"`

	// From and To are set in an EventOutput; see Output. If From is larger than the To of the
	// previous event, the output between them was not sent.
	From int64 `json:"from,omitempty"`
	To   int64 `json:"to,omitempty"`
}

// MarshalJSON writes the same bytes as encoding/json would, but faster: each slot has an
// event.
func (e Event) MarshalJSON() ([]byte, error) {
	o := make(codec.Object, 0, 320+len(e.Error)+len(e.Output))
	o = o.Open().Number("v", e.V).Text("kind", string(e.Kind)).Time("time", e.Time).Text("node", e.Node).
		TextIf("id", e.ID).TextIf("job", e.Job).NumberIf("attempt", e.Attempt).RevisionIf("fence", e.Fence).
		TextIf("error", e.Error).TextIf("peer", e.Peer).TextIf("alert", string(e.Alert)).RevisionIf("job_revision", e.JobRevision).
		NumberIf("count", e.Count).TimeIf("last", e.Last).TextIf("output", e.Output).
		RevisionIf("revision", e.Revision).TextIf("since", e.Since).TextIf("order", e.Order).TrueIf("reopened", e.Reopened)
	if e.Progress != nil {
		p, err := codec.Marshal(e.Progress)
		if err != nil {
			return nil, err
		}
		o = append(o.Name("progress"), p...)
	}
	return o.NumberIf("from", int(e.From)).NumberIf("to", int(e.To)).End(), nil
}

// UnmarshalJSON reads the body of an event. The kind may be one that this program does
// not know. It refuses a value of another format version with ErrVersion, and one that is
// out of bounds with ErrInvalid.
func (e *Event) UnmarshalJSON(data []byte) error {
	type members Event // without methods
	var m members
	if err := codec.Unmarshal(data, &m); err != nil {
		return codec.Unreadable("event", err)
	}
	if m.V != codec.Version {
		return fmt.Errorf("%w: an event has v=%d, this program knows v=%d: upgrade this program", ErrVersion, m.V, codec.Version)
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
	b.Words("since", e.Since)
	b.Words("order", e.Order)
	if e.Job != "" {
		b.Names("job", e.Job)
	}
	b.Number("attempt", e.Attempt, 0, codec.MaxClaims)
	b.Number("count", e.Count, 0, codec.MaxSlots)
	b.Times("time", &e.Time, &e.Last)
	codec.CutText(codec.MaxText, &e.Error)
	codec.CutText(maxOutputText, &e.Output)
	if e.Progress != nil {
		e.Progress.bound(&b)
	}
	if e.From < 0 || e.To < e.From {
		b.Refuse("output from %d to %d", e.From, e.To)
	}
	return b.Err
}
