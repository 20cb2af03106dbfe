package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// CancelRequest asks the node that runs a slot to end it for good. It is the
// body of a request on <namespace>.node.<node>.cancel, answered with a
// CancelAnswer. The record of a live owner is never rewritten by others: its
// completion would be refused. So its owner is asked, and completes it.
//
// A request may be lost, and come late or twice; it names the claim it means, so
// that it cannot end a later attempt. Who asks repeats it until the record is
// final, or the owner is proved dead.
type CancelRequest struct {
	V  int    `json:"v"`
	ID string `json:"id"`

	// Fence is the revision of the running record that the asker has read.
	Fence uint64 `json:"fence"`

	// Replaced says that a newer slot asks, not a person.
	Replaced bool `json:"replaced,omitempty"`

	// By names who asks: an operator, or the ID of the newer slot.
	By string `json:"by"`
}

// CancelAnswer is what the node says to a CancelRequest.
type CancelAnswer struct {
	V int `json:"v"`

	// Ending says that the context of this very attempt has ended for the
	// request. False: it does not run here any more, or not yet.
	Ending bool `json:"ending"`

	// Error says what is wrong with the request.
	Error string `json:"error,omitempty"`
}

// DecodeCancel reads a request and which slot it means.
func DecodeCancel(data []byte) (job.Slot, CancelRequest, error) {
	var r CancelRequest
	if err := json.Unmarshal(data, &r); err != nil {
		return job.Slot{}, r, codec.Unreadable("request", err)
	}
	if r.V != codec.Version {
		return job.Slot{}, r, fmt.Errorf("%w: the request has v=%d, this program knows v=%d", job.ErrVersion, r.V, codec.Version)
	}
	slot, err := job.ParseSlotID(r.ID)
	if err == nil && r.Fence == 0 {
		err = fmt.Errorf("%w request: it names no fence", job.ErrInvalid)
	}
	return slot, r, err
}

// DecodeCancelAnswer reads a node's answer. Its error says what is wrong with it.
func DecodeCancelAnswer(data []byte) (CancelAnswer, error) {
	var a CancelAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		return CancelAnswer{}, codec.Unreadable("answer", err)
	}
	codec.CutText(codec.MaxText, &a.Error)
	return a, nil
}

// Cause is what the handler's context ends with, and what the slot's record will
// say: ErrCancelled or ErrReplaced, with who asked.
func (r CancelRequest) Cause() error {
	if r.Replaced {
		return fmt.Errorf("%w by %s", job.ErrReplaced, oneName(r.By))
	}
	return fmt.Errorf("%w by %s", job.ErrCancelled, oneName(r.By))
}

// Ended reports whether cause says that a slot was ended for good from outside.
func Ended(cause error) bool {
	return errors.Is(cause, job.ErrCancelled) || errors.Is(cause, job.ErrReplaced)
}

// oneName makes one short line of what somebody sent as a name.
func oneName(s string) string {
	const most = 256
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if s == "" {
		return "nobody knows"
	}
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// Cancel is the record that ends a slot which nobody runs, for the cause: one
// without a record, whose message is d; one that waits to be retried; or one
// whose owner was proved dead (v.OwnerDead). It is to be written at the view's
// revision. A running slot with a live owner is that owner's to end: see
// CancelRequest.
func Cancel(d Delivery, v View, cause error) job.Record {
	if v.Record != nil && v.Record.State == job.Running {
		died := died(v)
		v.Record = &died
	}
	return ended(record(d, v), v, job.Cancelled, cause.Error())
}

// Reopen is the record that gives a slot which has ended a new start, with so many
// more attempts: it is due at once, and keeps its history.
func Reopen(r job.Record, by string, attempts int, now time.Time) job.Record {
	r.Error = clipError(fmt.Sprintf("given a new start by %s; it was %s%s", oneName(by), r.State, because(r.Error)))
	r.State, r.Node, r.MaxAttempts = job.Retrying, by, min(r.Attempt+attempts, codec.MaxClaims)
	r.RetryAt, r.Finished, r.StartBy = now.UTC(), time.Time{}, time.Time{}
	return r
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
