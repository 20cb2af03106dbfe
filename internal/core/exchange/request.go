package exchange

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/output"
	"github.com/cronce-io/cronce/job"
)

// FollowFor is how long a node sends an attempt's output after an OutputRequest with Follow. A
// client that follows the attempt repeats the request more often than that.
const FollowFor = 10 * time.Second

// OutputRequest asks the node that runs a slot what its attempt has reported so far. It is the
// body of a request on <namespace>.node.<node>.output, which is answered with an OutputAnswer.
type OutputRequest struct {
	V  int    `json:"v"`
	ID string `json:"id"`

	// Follow asks the node to send the attempt's output as events for the next FollowFor.
	Follow bool `json:"follow,omitempty"`
}

// OutputAnswer is the answer to an OutputRequest.
type OutputAnswer struct {
	V int `json:"v"`

	// Runs is true if the node runs a handler of the slot. Otherwise the members below, except
	// Error, are not set.
	Runs    bool   `json:"runs"`
	Attempt int    `json:"attempt,omitempty"`
	Fence   uint64 `json:"fence,omitempty"`

	// Progress is the newest progress that the handler has reported. Nil: none was reported.
	Progress *job.Progress `json:"progress,omitempty"`

	// Output is what would be recorded if the attempt ended now. To is how many bytes the
	// attempt has written. The output events that this request causes begin at To or before it.
	Output string `json:"output,omitempty"`
	To     int64  `json:"to,omitempty"`

	// Error is why the request is invalid.
	Error string `json:"error,omitempty"`
}

// DecodeOutputRequest reads a request, and returns its slot too.
func DecodeOutputRequest(data []byte) (job.Slot, OutputRequest, error) {
	var r OutputRequest
	if _, err := codec.Decode("request", data, &r); err != nil {
		return job.Slot{}, r, err
	}
	slot, err := job.ParseSlotID(r.ID)
	return slot, r, err
}

// MarshalOutputAnswer returns the JSON of the answer. If that has more than limit bytes, it cuts the
// output. A limit of 0 means none.
func MarshalOutputAnswer(a OutputAnswer, limit int) ([]byte, error) {
	data, err := codec.Marshal(a)
	if over := len(data) - limit; err == nil && limit > 0 && over > 0 {
		a.Output = output.ShrinkBy(a.Output, over)
		return codec.Marshal(a)
	}
	return data, err
}

// DecodeOutputAnswer reads the answer of a node. If the data is not an answer, or the answer
// refuses the request, the error wraps job.ErrInvalid.
func DecodeOutputAnswer(data []byte) (OutputAnswer, error) {
	var a OutputAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		return OutputAnswer{}, codec.Unreadable("answer", err)
	}
	b := codec.Bounds{What: "answer"}
	b.Number("v", a.V, codec.Version, codec.Version)
	b.Number("attempt", a.Attempt, 0, codec.MaxClaims)
	if a.Error != "" {
		b.Refuse("%s", codec.Clip(a.Error))
	}
	if a.To < 0 {
		b.Refuse("to %d: must be at least 0", a.To)
	}
	if p := a.Progress; p != nil {
		b.Times("progress.time", &p.Time)
		codec.CutText(codec.MaxOldBytes, &p.Text)
	}
	codec.CutText(2*job.MaxOutput, &a.Output)
	if b.Err != nil {
		return OutputAnswer{}, b.Err
	}
	return a, nil
}

// HoldsRequest asks a live node whether it still holds the claim of a running record. It has the
// subject of a CancelRequest, and is answered with a HoldsAnswer. An older program takes it for a
// CancelRequest without a fence and answers with an error, which proves nothing.
type HoldsRequest struct {
	V  int    `json:"v"`
	ID string `json:"id"`

	// Claim is the revision of the running record that the sender has read.
	Claim uint64 `json:"claim"`
}

// HoldsAnswer is the answer to a HoldsRequest.
//
// An answer that the claim is not held stays true: no handler will start under this claim. If the
// node claims the slot again, its write and the sender's takeover name the same revision, and the
// broker accepts only one of them.
type HoldsAnswer struct {
	V int `json:"v"`

	// Holds is true if the slot is in flight on the node.
	Holds bool `json:"holds"`

	// Ended is true if Holds is, and either the handler has not returned although its context has
	// ended, or the attempt's result cannot be recorded. Past the horizon, the sender may then end
	// the slot.
	Ended bool `json:"ended,omitempty"`

	// Error is why the request is invalid.
	Error string `json:"error,omitempty"`
}

// DecodeHolds reads a request, and returns its slot. It returns false if the data is not a
// HoldsRequest.
func DecodeHolds(data []byte) (job.Slot, bool) {
	var r HoldsRequest
	if json.Unmarshal(data, &r) != nil || r.V != codec.Version || r.Claim == 0 {
		return job.Slot{}, false
	}
	slot, err := job.ParseSlotID(r.ID)
	return slot, err == nil
}

// DecodeHoldsAnswer reads the answer of a node. The error wraps job.ErrUnknown if the answer proves
// nothing: it cannot be read, has another version, or reports an error.
func DecodeHoldsAnswer(data []byte) (HoldsAnswer, error) {
	var a HoldsAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		return HoldsAnswer{}, fmt.Errorf("%w: %w", job.ErrUnknown, err)
	}
	if a.V != codec.Version || a.Error != "" {
		return HoldsAnswer{}, fmt.Errorf("%w: v=%d %s", job.ErrUnknown, a.V, codec.Clip(a.Error))
	}
	return a, nil
}
