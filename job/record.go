package job

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// State is where a slot stands. Six of them are outcomes, and final.
type State string

const (
	Pending   State = "pending"  // waits in the stream; never stored
	Running   State = "running"  // claimed by Node
	Retrying  State = "retrying" // an attempt failed; the next is due at RetryAt
	Succeeded State = "succeeded"
	Failed    State = "failed"    // attempts spent, or an error that no retry mends
	Skipped   State = "skipped"   // another slot of the job was in its way
	Missed    State = "missed"    // not published in time, and the catch-up policy left it out
	Expired   State = "expired"   // older than the horizon, or past its start deadline, and never started
	Cancelled State = "cancelled" // by an operator, or its job's plan no longer has it
)

// Final reports whether the state is an outcome.
func (s State) Final() bool {
	switch s {
	case Succeeded, Failed, Skipped, Missed, Expired, Cancelled:
		return true
	}
	return false
}

// Record is what the ledger keeps of one slot, under Slot.Key.
//
// Invariants:
//   - It is only ever written by Create or by Update at the revision that the
//     writer read or wrote: a won write is the claim, its revision the fence
//     (invariant 3).
//   - Once its state is final it never changes, but for an operator's retry
//     (invariant 5).
//   - While Running it belongs to Node: others write it only after they have
//     fenced Node.
//   - Attempt counts claims, so a worker that died spent one.
type Record struct {
	Slot  Slot
	Queue string
	State State

	// Attempt is the number of claims so far, Attempts their history; the last
	// of Attempts is the current one while Running.
	Attempt  int
	Attempts []Attempt

	// MaxAttempts is the job's retry.attempts at the first claim: a slot keeps
	// it, so that no edit makes an at-most-once slot start twice.
	MaxAttempts int

	// StartBy is the job's deadline at the first claim: a slot that was claimed and
	// released does not start after it. Zero: its job had none.
	StartBy time.Time

	// Node owns the slot while Running; afterwards it is who wrote the outcome.
	Node string

	// Nonce is new with every write.
	Nonce string

	// JobRevision is the definition that the slot was published under.
	JobRevision uint64

	// Due is when the slot was to be published, Published when the broker
	// stored it, Publisher the producer that had it stored.
	Due, Published time.Time
	Publisher      string

	// Event says that a message of a stream started the run: its age counts from Due,
	// when that message was stored.
	Event bool

	// Payload is a triggered run's own, at most MaxPayload bytes: no definition
	// has it, should the message be lost. Nil for slots of a plan.
	Payload []byte

	// RetryAt is when the next attempt is due; set while Retrying.
	RetryAt time.Time

	// Finished is when the outcome was written, by the writer's corrected clock.
	Finished time.Time

	// Error is the last attempt's error, or the reason of the outcome.
	Error string

	// Output is the first of what the last attempt wrote, up to Job.Output.
	Output string

	// Shards is set in the record of a whole slot that is split: how many parts it
	// has, for good. Nobody owns it; while it is Running its Error, if there is
	// one, is why it is to end. Its outcome is that of its parts.
	Shards int

	// Count and Last are set in the record of a range of missed slots, whose
	// first is Slot.
	Count int
	Last  time.Time

	// Extra holds the members that a newer program stored, for which this one has no
	// field. They are kept when the record is written again.
	Extra map[string]json.RawMessage
}

// Attempt is one claim of a slot and what came of it.
type Attempt struct {
	Number   int       `json:"attempt"`
	Node     string    `json:"node"`
	Fence    uint64    `json:"fence,omitempty"` // the claim's revision; known from the write after it
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished,omitzero"`
	Error    string    `json:"error,omitempty"`
}

type recordWire struct {
	V           int       `json:"v"`
	ID          string    `json:"id"`
	Queue       string    `json:"queue"`
	State       State     `json:"state"`
	Attempt     int       `json:"attempt"`
	Attempts    []Attempt `json:"attempts,omitempty"`
	MaxAttempts int       `json:"max_attempts,omitempty"`
	StartBy     time.Time `json:"start_by,omitzero"`
	Node        string    `json:"node"`
	Nonce       string    `json:"nonce"`
	JobRevision uint64    `json:"job_revision,omitempty"`
	Due         time.Time `json:"due,omitzero"`
	Published   time.Time `json:"published,omitzero"`
	Publisher   string    `json:"publisher,omitempty"`
	Event       bool      `json:"event,omitempty"`
	Payload     []byte    `json:"payload,omitempty"` // base64
	RetryAt     time.Time `json:"retry_at,omitzero"`
	Finished    time.Time `json:"finished,omitzero"`
	Error       string    `json:"error,omitempty"`
	Output      string    `json:"output,omitempty"`
	Shards      int       `json:"shards,omitempty"`
	Count       int       `json:"count,omitempty"`
	Last        time.Time `json:"last,omitzero"`
}

// Fence is that of the record's last attempt, where the record stands at revision: of
// one without attempts, and of one whose attempt runs, that revision.
func (r Record) Fence(revision uint64) uint64 {
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].Fence != 0 {
		return r.Attempts[n-1].Fence
	}
	return revision
}

// MarshalJSON writes the ledger's value: what encoding/json makes of recordWire,
// in a tenth of the time.
func (r Record) MarshalJSON() ([]byte, error) {
	return r.AppendJSON(make([]byte, 0, 640+len(r.Output)+len(r.Error)+2*len(r.Payload)))
}

// AppendJSON appends what MarshalJSON returns.
func (r Record) AppendJSON(b []byte) ([]byte, error) {
	o := codec.Object(b).Open().Number("v", codec.Version).Text("id", r.Slot.ID()).Text("queue", r.Queue).Text("state", string(r.State)).Number("attempt", r.Attempt)
	for i, a := range r.Attempts {
		if i == 0 {
			o = append(o.Name("attempts"), '[')
		} else {
			o = append(o, ',')
		}
		o = a.append(o)
		if i == len(r.Attempts)-1 {
			o = append(o, ']')
		}
	}
	o = o.NumberIf("max_attempts", r.MaxAttempts).TimeIf("start_by", r.StartBy).Text("node", r.Node).Text("nonce", r.Nonce).RevisionIf("job_revision", r.JobRevision).
		TimeIf("due", r.Due).TimeIf("published", r.Published).TextIf("publisher", r.Publisher).TrueIf("event", r.Event)
	if len(r.Payload) > 0 {
		o = append(base64.StdEncoding.AppendEncode(append(o.Name("payload"), '"'), r.Payload), '"')
	}
	o = o.TimeIf("retry_at", r.RetryAt).TimeIf("finished", r.Finished).TextIf("error", r.Error).TextIf("output", r.Output).
		NumberIf("shards", r.Shards).NumberIf("count", r.Count).TimeIf("last", r.Last)
	if len(r.Extra) == 0 {
		return o.End(), nil
	}
	whole, err := codec.WithExtra(o.End()[len(b):], r.Extra)
	return append(b, whole...), err
}

func (a Attempt) append(o codec.Object) codec.Object {
	return o.Open().Number("attempt", a.Number).Text("node", a.Node).RevisionIf("fence", a.Fence).Time("started", a.Started).
		TimeIf("finished", a.Finished).TextIf("error", a.Error).End()
}

// UnmarshalJSON reads a value of the ledger. It refuses a value of another format version
// with ErrVersion, and one that is out of bounds with ErrInvalid.
func (r *Record) UnmarshalJSON(data []byte) error {
	var w recordWire
	extra, err := codec.Decode("slot record", data, &w)
	if err != nil {
		return err
	}
	slot, err := ParseSlotID(w.ID)
	if err != nil {
		return fmt.Errorf("slot record: %w", err)
	}
	if err := w.bound(slot); err != nil {
		return err
	}
	*r = Record{
		Slot: slot, Queue: w.Queue, State: w.State, Attempt: w.Attempt, Attempts: w.Attempts,
		MaxAttempts: w.MaxAttempts, StartBy: w.StartBy, Node: w.Node, Nonce: w.Nonce, JobRevision: w.JobRevision,
		Due: w.Due, Published: w.Published, Publisher: w.Publisher, Event: w.Event, Payload: w.Payload, RetryAt: w.RetryAt,
		Finished: w.Finished, Error: w.Error, Output: w.Output, Shards: w.Shards, Count: w.Count, Last: w.Last, Extra: extra,
	}
	return nil
}

func (w *recordWire) bound(slot Slot) error {
	b := codec.Bounds{What: "slot record"}
	if w.State == Pending {
		b.Refuse("state %q: it is never stored", w.State)
	}
	codec.Word(&b, "state", w.State, Running, Retrying, Succeeded, Failed, Skipped, Missed, Expired, Cancelled)
	if w.Queue != "" { // a client may not know it
		b.Names("queue", w.Queue)
	}
	b.Number("attempt", w.Attempt, 0, codec.MaxClaims)
	b.Number("max_attempts", w.MaxAttempts, 0, codec.MaxClaims)
	b.Number("count", w.Count, 0, codec.MaxSlots)
	switch {
	case w.Shards != 0 && (slot.Shards > 0 || slot.Range):
		b.Refuse("shards %d: slot %q cannot be split", w.Shards, w.ID)
	case w.Shards != 0:
		b.Number("shards", w.Shards, 2, MaxShards)
	}
	b.Words("node", w.Node)
	b.Words("nonce", w.Nonce)
	b.Words("publisher", w.Publisher)
	b.Length("payload", len(w.Payload), MaxPayload)
	b.Times("time", &w.Due, &w.Published, &w.StartBy, &w.RetryAt, &w.Finished, &w.Last)
	codec.CutText(codec.MaxText, &w.Error)
	codec.CutText(maxOutputText, &w.Output)
	w.Attempts = codec.Last(w.Attempts, codec.MaxHistory)
	for i := range w.Attempts {
		a := &w.Attempts[i]
		b.Number("attempts.attempt", a.Number, 0, codec.MaxClaims)
		b.Words("attempts.node", a.Node)
		b.Times("attempts", &a.Started, &a.Finished)
		codec.CutText(codec.MaxText, &a.Error)
	}
	return b.Err
}

// maxOutputText bounds, in bytes, what is read of an output: more than this program ever
// writes.
const maxOutputText = 2 * MaxOutput
