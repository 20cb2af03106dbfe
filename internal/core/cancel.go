package core

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// CancelRequest asks the node that runs a slot to end it. It is the body of a request on
// <namespace>.node.<node>.cancel, which the node answers with a CancelAnswer. No other node
// writes the record of a live owner, since the owner's completion would then be refused.
//
// A request may be lost, late or delivered twice. It names one claim, so it cannot end a later
// attempt. The sender repeats it until the record is final or the owner is proved dead.
type CancelRequest struct {
	V  int    `json:"v"`
	ID string `json:"id"`

	// Fence is the revision of the running record that the sender has read.
	Fence uint64 `json:"fence"`

	// Replaced is true if a newer slot replaces this one, and false if an operator cancels it.
	Replaced bool `json:"replaced,omitempty"`

	// By names the operator, or is the ID of the newer slot.
	By string `json:"by"`
}

// CancelAnswer is the answer to a CancelRequest.
type CancelAnswer struct {
	V int `json:"v"`

	// Ending is true if this request, or an earlier one, has ended the context of this attempt.
	// It is false if the node does not run the attempt now, or if the context had ended for
	// another reason.
	Ending bool `json:"ending"`

	// Error is why the request is invalid.
	Error string `json:"error,omitempty"`
}

// DecodeCancel reads a request, and returns its slot too.
func DecodeCancel(data []byte) (job.Slot, CancelRequest, error) {
	var r CancelRequest
	if _, err := codec.Decode("request", data, &r); err != nil {
		return job.Slot{}, r, err
	}
	slot, err := job.ParseSlotID(r.ID)
	if err == nil && r.Fence == 0 {
		err = fmt.Errorf("%w request: it has no fence", job.ErrInvalid)
	}
	return slot, r, err
}

// DecodeCancelAnswer reads the answer of a node. If the answer cannot be read, or has another
// version, the error wraps job.ErrUnknown, as if there were none.
func DecodeCancelAnswer(data []byte) (CancelAnswer, error) {
	var a CancelAnswer
	if _, err := codec.Decode("answer", data, &a); err != nil {
		return CancelAnswer{}, fmt.Errorf("%w: %w", job.ErrUnknown, err)
	}
	codec.CutText(codec.MaxText, &a.Error)
	return a, nil
}

// Cause returns the cause that ends the handler's context. The slot's record stores it. It wraps
// ErrCancelled or ErrReplaced, and names By.
func (r CancelRequest) Cause() error {
	if r.Replaced {
		return fmt.Errorf("%w by %s", job.ErrReplaced, oneName(r.By))
	}
	return fmt.Errorf("%w by %s", job.ErrCancelled, oneName(r.By))
}

// IsCancellation reports whether the cause comes from a CancelRequest.
func IsCancellation(cause error) bool {
	return errors.Is(cause, job.ErrCancelled) || errors.Is(cause, job.ErrReplaced)
}

// oneName cuts a text from the broker to a single short line.
func oneName(s string) string {
	const most = 256
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if s == "" {
		return "nobody knows" // the protocol's text for an empty name
	}
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// Cancel returns the record that ends a slot which no node runs: a slot without a record, whose
// message is d; one that waits for a retry; or one whose owner was proved dead (v.OwnerDead).
// The caller writes it at the view's revision. A slot with a live owner needs a CancelRequest.
func Cancel(d Delivery, v View, cause error) job.Record {
	if v.Record != nil && v.Record.State == job.Running {
		died := died(v)
		v.Record = &died
	}
	return withOutcome(record(d, v), v, job.Cancelled, cause.Error())
}

// Reopen returns the record that lets a slot with an outcome run again, with more attempts. The
// slot is due at once, and keeps its history.
func Reopen(r job.Record, by string, attempts int, now time.Time) job.Record {
	r.Error = clipError(fmt.Sprintf("given a new start by %s; it was %s%s", oneName(by), r.State, Because(r.Error)))
	r.State, r.Node, r.MaxAttempts = job.Retrying, by, min(r.Attempt+attempts, codec.MaxClaims)
	r.RetryAt, r.Finished, r.StartBy = now.UTC(), time.Time{}, time.Time{}
	return r
}

// Because returns ": " and the reason, or nothing.
func Because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
