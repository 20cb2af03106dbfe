package core

import (
	"encoding/json"
	"fmt"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// HoldsRequest asks a node that lives whether it holds the claim of a running record
// that names it. It goes to the subject of a CancelRequest, and is answered with a
// HoldsAnswer. A node that does not know it finds no fence in it and answers with an
// error, which says nothing about the claim.
type HoldsRequest struct {
	V  int    `json:"v"`
	ID string `json:"id"`

	// Claim is the revision of the running record that the asker has read.
	Claim uint64 `json:"claim"`
}

// HoldsAnswer is what the node says to a HoldsRequest.
//
// "Not held" stays true however late it is read: no handler will ever start by this
// claim. The node may claim the slot again, by a write at the same revision. So one of
// two is refused, that write or the takeover of the asker.
type HoldsAnswer struct {
	V int `json:"v"`

	// Holds says that the node owes the slot a claim, a run or a completion.
	Holds bool `json:"holds"`

	// Ended says that it does, and that its handler has not returned although its
	// context has ended.
	Ended bool `json:"ended,omitempty"`

	// Error says what is wrong with the request.
	Error string `json:"error,omitempty"`
}

// DecodeHolds reads a request and which slot it means. It returns false if the data is
// no HoldsRequest.
func DecodeHolds(data []byte) (job.Slot, bool) {
	var r HoldsRequest
	if json.Unmarshal(data, &r) != nil || r.V != codec.Version || r.Claim == 0 {
		return job.Slot{}, false
	}
	slot, err := job.ParseSlotID(r.ID)
	return slot, err == nil
}

// Err returns an error if the answer says nothing.
func (a HoldsAnswer) Err() error {
	if a.V != codec.Version || a.Error != "" {
		return fmt.Errorf("%w: v=%d %s", job.ErrUnknown, a.V, codec.Clip(a.Error))
	}
	return nil
}
