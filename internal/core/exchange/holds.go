package exchange

import (
	"encoding/json"
	"fmt"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

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
