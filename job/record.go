package job

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// State is the state of a slot. Six of them are outcomes: a slot that has one keeps it,
// unless an operator reopens the slot.
type State string

const (
	Pending  State = "pending"  // published, and not claimed yet; it has no record
	Waiting  State = "waiting"  // stands in its job's line until other slots of the job have ended
	Running  State = "running"  // claimed by a node
	Retrying State = "retrying" // an attempt has failed; the next one is due at Record.RetryAt

	Succeeded State = "succeeded" // the handler returned nil
	Failed    State = "failed"    // its attempts are spent, one had a Permanent error, or the horizon leaves no time for another
	Skipped   State = "skipped"   // another slot of the job kept it from starting
	Missed    State = "missed"    // left out by the catch-up policy, or due while the job was paused
	Expired   State = "expired"   // not started within the horizon or the job's deadline
	Cancelled State = "cancelled" // by an operator, by a newer slot, or because the job was deleted or its plan changed
)

// Final reports whether the state is an outcome.
func (s State) Final() bool {
	switch s {
	case Succeeded, Failed, Skipped, Missed, Expired, Cancelled:
		return true
	}
	return false
}

// Record is the entry of one slot in the ledger, under Slot.Key: the slot's state, its attempts
// and its outcome. The first claim creates the record. If the slot ends without a claim, the
// outcome creates it. While it is Running, only its Node changes it, until that node is declared
// dead, or is found not to hold the claim. Any worker may change the record of a whole slot that
// is split.
type Record struct {
	Slot  Slot   `json:"-"` // its ID in the JSON
	Queue string `json:"queue"`
	State State  `json:"state"`

	// Attempt is the number of claims so far. Attempts are the newest ones; while the
	// record is Running, the last is the current one. A claim counts even if its worker
	// dies.
	Attempt  int       `json:"attempt"`
	Attempts []Attempt `json:"attempts,omitempty"`

	// MaxAttempts is Retry.Attempts of the job at the first claim. Later edits of the job do
	// not change it, so that an at-most-once slot cannot start twice.
	MaxAttempts int `json:"max_attempts,omitempty"`

	// StartBy is the last instant at which the slot may start for the first time, computed
	// from Job.Deadline at the first claim. Zero: no deadline.
	StartBy time.Time `json:"start_by,omitzero"`

	// OnTime is true while the slot is Waiting, if it was published on time and had not begun.
	// Then a newer slot may replace it, depending on Job.Overlap.
	OnTime bool `json:"on_time,omitempty"`

	// Node is the node that runs the slot, or the node or operator that wrote the outcome.
	Node string `json:"node"`

	// Nonce differs with every write of the record.
	Nonce string `json:"nonce"`

	// JobRevision is the registry revision of the job from which the slot was computed.
	JobRevision uint64 `json:"job_revision,omitempty"`

	// Due is when the slot was due: see Run.Due. Published is when the broker stored the slot's
	// message, and Publisher the node that sent it.
	Due       time.Time `json:"due,omitzero"`
	Published time.Time `json:"published,omitzero"`
	Publisher string    `json:"publisher,omitempty"`

	// Event is true if a message of a stream started the run. The age of the run then counts
	// from Due, the time at which the stream stored that message.
	Event bool `json:"event,omitempty"`

	// Payload is that of a slot with a Token, kept in case its message is lost. It is nil for
	// planned slots, which have the job's payload. The JSON has it in base64.
	Payload []byte `json:"payload,omitempty"`

	// RetryAt is when the next attempt is due. It is set while the record is Retrying.
	RetryAt time.Time `json:"retry_at,omitzero"`

	// Finished is when the slot got its outcome, by the broker's clock as Node estimated it.
	Finished time.Time `json:"finished,omitzero"`

	// Error is the error of the last attempt, or the reason of the outcome.
	Error string `json:"error,omitempty"`

	// Output is the beginning and the end of what the last attempt wrote: at most Job.Output
	// bytes in total, and a mark that states how many bytes were cut.
	Output string `json:"output,omitempty"`

	// Shards is set in the record of the whole slot if the slot is split: it is the number of
	// shards. No node runs the whole slot. It ends when all shards have ended. If Error is set
	// earlier, the shards are being cancelled, and Error is the reason.
	Shards int `json:"shards,omitempty"`

	// Count and Last are set in the record of a range of missed slots: their number, and the
	// instant of the last one. Slot is the first.
	Count int       `json:"count,omitempty"`
	Last  time.Time `json:"last,omitzero"`

	// Result is what Run.SetResult was given by the attempt that succeeded. Nil: none.
	// ResultDropped is its size in bytes if it could not be stored, because the record would
	// have been larger than the server's max_payload.
	Result        json.RawMessage `json:"result,omitempty"`
	ResultDropped int             `json:"result_dropped,omitempty"`

	// Shadow is the number of the last attempt whose handler returned ErrShadow. Zero: none. It is
	// a number and not a flag because a program that does not know the member keeps it, and may
	// add an attempt that did the work. See IsShadow.
	Shadow int `json:"shadow,omitempty"`

	// Extra holds the members that a newer program stored, for which this one has no
	// field. They are kept when the record is written again.
	Extra map[string]json.RawMessage `json:"-"`
}

// Attempt is one claim of a slot and its result.
type Attempt struct {
	Number int    `json:"attempt"` // from 1
	Node   string `json:"node"`
	Fence  uint64 `json:"fence,omitempty"` // the claim's revision; zero until the write after the claim

	// Started and Finished are by the broker's clock as Node estimated it. Finished is zero while
	// the attempt runs.
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished,omitzero"`
	Error    string    `json:"error,omitempty"`

	// Output is what the attempt wrote. In the last attempt it is empty, and Record.Output has it
	// instead, unless a claim after that attempt was released. The older an attempt is, the less of
	// its output is kept.
	Output string `json:"output,omitempty"`
}

// recordWire is the JSON of a Record.
type recordWire struct {
	V  int    `json:"v"`
	ID string `json:"id"`
	recordMembers
}

// recordMembers is a Record without methods.
type recordMembers Record

// IsShadow reports whether the last attempt was a shadow: its handler did not do the work. The
// whole of a split slot is a shadow if all its shards are.
func (r Record) IsShadow() bool { return r.Shadow > 0 && r.Shadow == r.Attempt }

// Fence returns the fence of the last attempt. revision is that of the record in the ledger;
// it is the fence while an attempt runs.
func (r Record) Fence(revision uint64) uint64 {
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].Fence != 0 {
		return r.Attempts[n-1].Fence
	}
	return revision
}

// MarshalJSON writes the record as the ledger holds it. It writes the same bytes as
// encoding/json would for recordWire, in a tenth of the time.
func (r Record) MarshalJSON() ([]byte, error) {
	return r.AppendJSON(make([]byte, 0, 640+len(r.Output)+len(r.Error)+len(r.Result)+2*len(r.Payload)))
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
	o = o.NumberIf("max_attempts", r.MaxAttempts).TimeIf("start_by", r.StartBy).TrueIf("on_time", r.OnTime).Text("node", r.Node).Text("nonce", r.Nonce).RevisionIf("job_revision", r.JobRevision).
		TimeIf("due", r.Due).TimeIf("published", r.Published).TextIf("publisher", r.Publisher).TrueIf("event", r.Event)
	if len(r.Payload) > 0 {
		o = append(base64.StdEncoding.AppendEncode(append(o.Name("payload"), '"'), r.Payload), '"')
	}
	o = o.TimeIf("retry_at", r.RetryAt).TimeIf("finished", r.Finished).TextIf("error", r.Error).TextIf("output", r.Output).
		NumberIf("shards", r.Shards).NumberIf("count", r.Count).TimeIf("last", r.Last)
	if len(r.Result) > 0 {
		o = append(o.Name("result"), r.Result...)
	}
	o = o.NumberIf("result_dropped", r.ResultDropped).NumberIf("shadow", r.Shadow)
	if len(r.Extra) == 0 {
		return o.End(), nil
	}
	whole, err := codec.WithExtra(o.End()[len(b):], r.Extra)
	return append(b, whole...), err
}

func (a Attempt) append(o codec.Object) codec.Object {
	return o.Open().Number("attempt", a.Number).Text("node", a.Node).RevisionIf("fence", a.Fence).Time("started", a.Started).
		TimeIf("finished", a.Finished).TextIf("error", a.Error).TextIf("output", a.Output).End()
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
	*r = Record(w.recordMembers)
	r.Slot, r.Extra = slot, extra
	return nil
}

func (w *recordWire) bound(slot Slot) error {
	b := codec.Bounds{What: "slot record"}
	if w.State == Pending {
		b.Refuse("state %q: it is never stored", w.State)
	}
	codec.Word(&b, "state", w.State, Waiting, Running, Retrying, Succeeded, Failed, Skipped, Missed, Expired, Cancelled)
	if w.Queue != "" { // a client that records an outcome may not know the queue
		b.Names("queue", w.Queue)
	}
	b.Number("attempt", w.Attempt, 0, codec.MaxClaims)
	b.Number("max_attempts", w.MaxAttempts, 0, codec.MaxClaims)
	b.Number("count", w.Count, 0, codec.MaxSlots)
	b.Number("result_dropped", w.ResultDropped, 0, codec.MaxSlots)
	b.Number("shadow", w.Shadow, 0, codec.MaxClaims)
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
	switch {
	case string(w.Result) == "null":
		w.Result = nil
	case len(w.Result) > MaxResult:
		w.Result, w.ResultDropped = nil, len(w.Result)
	}
	w.Attempts = codec.Last(w.Attempts, codec.MaxHistory)
	for i := range w.Attempts {
		a := &w.Attempts[i]
		b.Number("attempts.attempt", a.Number, 0, codec.MaxClaims)
		b.Words("attempts.node", a.Node)
		b.Times("attempts", &a.Started, &a.Finished)
		codec.CutText(codec.MaxText, &a.Error)
		codec.CutText(maxOutputText, &a.Output)
	}
	return b.Err
}

// maxOutputText bounds the output that is read, in bytes. It is more than this program
// writes.
const maxOutputText = 2 * MaxOutput
