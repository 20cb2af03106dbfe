package core

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/output"
	"github.com/cronce-io/cronce/job"
)

// ReplacedBy returns the cause with which a slot ends when the newer slot s replaces it. It wraps
// ErrReplaced.
func ReplacedBy(s job.Slot) error { return fmt.Errorf("%w by %s", job.ErrReplaced, s) }

// end decides to write an outcome without a run. If the slot is a shard, and no shard
// of its whole slot has begun, the whole slot ends.
func end(d Delivery, v View, outcome job.State, reason string) Decision {
	if s, decided := decideByWhole(d, v); decided {
		return s
	}
	if d.Slot.Shards > 0 && v.Record == nil && (v.Whole.Record == nil || v.Whole.Record.State == job.Waiting) {
		return Decision{Action: WriteWhole, Record: withOutcome(newWhole(d), v, outcome, reason)}
	}
	return Decision{Action: End, Record: withOutcome(record(d, v), v, outcome, reason)}
}

// endByAge ends a slot because of its age. While the clock is implausible the slot waits instead,
// since an outcome is final.
func endByAge(d Delivery, v View, outcome job.State, reason string) Decision {
	if v.Implausible {
		return Decision{Action: Later, Delay: implausibleWait, Reason: "the slot would end because of its age, but the clock is implausible: " + reason}
	}
	return end(d, v, outcome, reason)
}

// withOutcome returns the record r with an outcome. It closes an attempt that is still open.
func withOutcome(r job.Record, v View, outcome job.State, reason string) job.Record {
	open := r.State == job.Running && len(r.Attempts) > 0 && r.Attempts[len(r.Attempts)-1].Finished.IsZero()
	r.OnTime = false
	r.State, r.Node, r.Error, r.Finished, r.RetryAt = outcome, v.Self, clipError(reason), v.Now.UTC(), time.Time{}
	if open {
		closeAttempt(&r, v.Revision, v.Now)
	}
	return r
}

// record returns a copy of the slot's record, or a new one if there is none.
func record(d Delivery, v View) job.Record {
	if v.Record != nil {
		r := *v.Record
		r.Attempts = slices.Clone(r.Attempts)
		return r
	}
	r := job.Record{
		Slot: d.Slot, Queue: d.Queue, JobRevision: d.JobRevision,
		Due: d.Due.UTC(), Published: d.Published.UTC(), Publisher: d.Node, Event: d.Event,
	}
	if d.Slot.Token != "" && len(d.Payload) <= job.MaxPayload {
		r.Payload = bytes.Clone(d.Payload) // the handler gets d.Payload, and may change it
	}
	if d.Slot.Range {
		r.Count, r.Last = d.Missed, d.MissedLast
	}
	return r
}

// Release returns the record that releases the claim in r, whose handler has not started. The
// attempt is not counted.
func Release(r job.Record, now time.Time) job.Record {
	r.Attempts = slices.Clone(r.Attempts[:max(len(r.Attempts)-1, 0)])
	r.State, r.Attempt, r.RetryAt = job.Retrying, max(r.Attempt-1, 0), now.UTC()
	r.Error = releasedText
	return r
}

const releasedText = "given back before it was started"

// Released reports whether Release returned r. Then r is retrying although no attempt failed.
func Released(r job.Record) bool { return r.State == job.Retrying && r.Error == releasedText }

// Outlasts reports whether the claim r is still valid although its key has another revision. stored
// is the key's record now, or nil if there is none. If the ledger was purged or an older copy of it
// was restored, stored is nil, this very claim, or a record from before it: the claim is valid. If
// the slot has ended, or another worker has taken it over and so counts more attempts, the claim
// is lost.
func Outlasts(r job.Record, stored *job.Record) bool {
	switch {
	case stored == nil:
		return true
	case stored.State.Final():
		return false
	case stored.State == job.Running && stored.Node == r.Node:
		return stored.Attempt <= r.Attempt
	}
	return stored.Attempt < r.Attempt
}

// Result is the result of an attempt.
type Result struct {
	// Err is the handler's error, or nil if it succeeded.
	Err error

	// Stopped is true if the worker ended the attempt because the worker was shutting down. Then
	// the next attempt is not delayed.
	Stopped bool

	// Cancelled is true if the slot was cancelled or replaced during the attempt. Err then wraps
	// the cause: see IsCancellation. If the handler returned nil all the same, the slot succeeded.
	Cancelled bool

	// Output is the handler's output, from output.Buffer.String.
	Output string

	// Value is what Run.SetResult was given. It counts only if the attempt succeeded.
	Value json.RawMessage

	// Shadow is true if the handler did not do the work: it returned job.ErrShadow, and Err is nil.
	Shadow bool

	// Backoff is the delay before the next attempt, unless Err sets another.
	Backoff time.Duration
}

// Complete returns the record that ends the attempt that claimed r at fence.
func Complete(r job.Record, fence uint64, now time.Time, horizon time.Duration, res Result) job.Record {
	r.Attempts = slices.Clone(r.Attempts)
	r.Error, r.Output = "", strings.ToValidUTF8(res.Output, "\uFFFD")
	if res.Err != nil {
		r.Error = cmp.Or(clipError(res.Err.Error()), "failed, and did not say why") // an empty error means success
	}
	closeAttempt(&r, fence, now)
	if res.Err == nil {
		r.State, r.Finished, r.Result = job.Succeeded, now.UTC(), res.Value
		if res.Shadow {
			r.Shadow = r.Attempt
		}
		return r
	}
	delay := res.Backoff
	if asked, ok := job.RetryDelay(res.Err); ok {
		delay = asked
	}
	if res.Stopped {
		delay = 0
	}
	switch {
	case res.Cancelled:
		r.State, r.Finished = job.Cancelled, now.UTC()
		return r
	case job.IsPermanent(res.Err):
	case r.Attempt >= r.MaxAttempts:
		r.Error += spent(r)
	case now.Add(delay).Sub(Began(r)) > horizon:
		r.Error += fmt.Sprintf(" (retries end at the horizon of %v)", horizon)
	default:
		r.State, r.RetryAt = job.Retrying, now.Add(delay).UTC()
		return r
	}
	r.State, r.Finished = job.Failed, now.UTC()
	return r
}

func closeAttempt(r *job.Record, fence uint64, now time.Time) {
	if n := len(r.Attempts); n > 0 {
		a := &r.Attempts[n-1]
		a.Fence, a.Finished, a.Error = fence, now.UTC(), r.Error
	}
}

func spent(r job.Record) string {
	if r.MaxAttempts == 1 {
		return " (its one attempt is spent)"
	}
	return fmt.Sprintf(" (all %d attempts are spent)", r.MaxAttempts)
}

const (
	// maxRecent is the number of attempts in a record that keep their whole error: the
	// newest ones.
	maxRecent     = 20
	maxErrorBytes = 2 << 10
)

// history returns the attempts that a record keeps, with the errors and outputs of old ones cut. It
// may change its argument.
func history(attempts []job.Attempt) []job.Attempt {
	attempts = codec.Last(attempts, codec.MaxHistory)
	for i := range max(0, len(attempts)-maxRecent) {
		attempts[i].Error = codec.ClipTo(attempts[i].Error, codec.MaxOldBytes)
	}
	output.ShrinkAttempts(attempts)
	return attempts
}

// clipError returns the part of an error that a record keeps: its beginning and its end. It
// replaces control characters, each of which takes six bytes in JSON.
func clipError(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, output.Valid(s))
	return output.Shrink(s, maxErrorBytes)
}
