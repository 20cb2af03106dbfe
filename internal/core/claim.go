package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Delivery is a slot message that the broker delivered to a worker.
type Delivery struct {
	Message
	Queue string

	// Payload is the message's body.
	Payload []byte

	// Published is when the broker stored the message, by its clock.
	Published time.Time

	// Count is how often the broker has delivered the message, this delivery included.
	Count int
}

// View is what a worker knows when it decides about a delivery. It holds reads and hints, which
// may be stale. A handler starts only after a won write (invariant 3).
type View struct {
	// Now is the worker's estimate of the broker's clock, and Error bounds the error of the
	// estimate. Implausible is true if Now differs so much from the worker's own clock that one of
	// the two must be badly wrong. Then no slot ends because of its age.
	Now         time.Time
	Error       time.Duration
	Implausible bool

	// Self is the worker's node.
	Self string

	Horizon time.Duration

	// Record is the slot's record, or nil. Revision is the last revision of its key.
	Record   *job.Record
	Revision uint64

	// OwnerDead is true if the record's node is fenced or has stopped.
	OwnerDead bool

	// Disowned is true if the record's node is alive but does not hold the claim: it has
	// answered so, or it has not answered and the slot is past its horizon. If the node is Self, it
	// has abandoned an attempt that may have started, and the slot is past its horizon.
	Disowned bool

	// Entry is the job's definition, at least as new as that of the message. It is nil if the
	// registry's leader has answered that the job was deleted, or if the definition cannot be read
	// and is not needed (see NeedsDefinition).
	Entry *plans.Entry

	// Handles is true if this worker has a handler for the job.
	Handles bool

	// Whole is the whole slot. It is used only if the delivered slot is a shard.
	Whole Whole

	// Admission is the verdict of the job's lock. It stays AdmissionUnasked for jobs that are not
	// Guarded.
	Admission Admission
}

// certain returns the time that the broker's clock has certainly reached.
func (v View) certain() time.Time { return v.Now.Add(-v.Error) }

// Action is what a worker does next with a delivery.
type Action int

const (
	// Ack: the slot has its outcome; ack the message.
	Ack Action = iota
	// Later: nak the message with Decision.Delay.
	Later
	// Prove: find out whether the record's node is dead or does not hold the claim, then decide
	// again.
	Prove
	// ReadWhole: read the record of the whole slot, then decide again.
	ReadWhole
	// WriteWhole: write Decision.Record, that of the whole slot, at View.Whole.Revision, then decide
	// again.
	WriteWhole
	// ConcludeWhole: conclude the whole slot if all its shards have ended; then Ack.
	ConcludeWhole
	// Enter: request a place in the job's lock (see Lock.Enter), then decide again.
	Enter
	// Stand: write Decision.Record, in the state Waiting, unless it is Stored already; put the slot
	// into its job's line; then Ack. For a shard, it is the record of the whole slot.
	Stand
	// Start: write Decision.Record at the view's revision. If the write is accepted, start the
	// handler.
	Start
	// End: write Decision.Record, an outcome, at the view's revision; then Ack.
	End
)

// Decision is the result of Decide.
type Decision struct {
	Action Action
	Delay  time.Duration
	Record job.Record

	// Stored is true if the record of a Stand is in the ledger already, as the view has it.
	Stored bool

	// Reason says why a Later needs an operator's attention. Empty: it needs none.
	Reason string
}

// Decide decides what a worker does next with a delivered slot. It holds all rules of claims.
// The caller ensures that its process has no other delivery of the slot in flight.
func Decide(d Delivery, v View) Decision {
	switch {
	case v.Record == nil:
		return first(d, v)
	case v.Record.State.Final():
		return Decision{Action: Ack}
	case v.Record.Shards > 0:
		return Decision{Action: ConcludeWhole} // its shards do the work
	case v.Record.State == job.Waiting:
		return called(d, v)
	case v.Record.State == job.Retrying:
		return retry(d, v)
	case v.Record.Node == v.Self && !v.Disowned:
		return adopt(d, v)
	case !v.OwnerDead && !v.Disowned:
		return Decision{Action: Prove}
	default:
		return takeOver(d, v)
	}
}

// NeedsDefinition reports whether the result of Decide depends on the job's definition. It does
// not for a slot that has ended, or that will end whatever the definition says. So such a slot
// ends even if the definition cannot be read.
func NeedsDefinition(d Delivery, v View) bool {
	if v.Record != nil && v.Record.State.Final() {
		return false
	}
	d, _ = believed(d, v.Entry)
	return !tooOld(d, v) && (v.Record != nil || !d.LeftOut() && (d.Refused == "" || d.Event))
}

// first decides about a slot without a record. Before the slot's due time it returns Later: an early
// message may be wrong, and an outcome based on it would end the real slot. It does not return Ack
// either, because the stream may have dropped the real message as a duplicate of the early one.
//
// It checks what the message says where it can. Each login that may publish slots of the job, a caller
// too, could otherwise end its planned slots.
func first(d Delivery, v View) Decision {
	d, doubted := believed(d, v.Entry)
	switch {
	case early(d, v) > 0 && (d.Slot.Range || !tooOld(d, v)):
		return Decision{Action: Later, Delay: min(early(d, v), longestWait)}
	case d.LeftOut() && d.Chained:
		return end(d, v, job.Missed, "its turn came while its job was paused")
	case d.LeftOut():
		return end(d, v, job.Missed, "not published in time, and left out by the catch-up policy")
	case isRefused(d, v):
		return end(d, v, job.Failed, d.Refused)
	case tooOld(d, v):
		return endByAge(d, v, job.Expired, fmt.Sprintf("older than the horizon of %v", v.Horizon))
	case len(d.Payload) > job.MaxPayload: // Cronce publishes no such payload, and a record cannot hold it
		return end(d, v, job.Cancelled, fmt.Sprintf("payload of %d bytes: at most %d", len(d.Payload), job.MaxPayload))
	case v.Entry == nil:
		return end(d, v, job.Cancelled, "job deleted")
	case doubted && paused(d, v.Entry):
		return end(d, v, job.Missed, "fell due while its job was paused")
	case uncomputed(d, v.Entry):
		s := unhandled(d)
		s.Reason = "the schedule of the past plan that was in force at the slot cannot be computed"
		return s
	case splitOtherwise(d, v.Entry):
		return Decision{Action: Ack} // the shards in the current plan have their own messages
	case !belongs(d, v.Entry):
		return end(d, v, job.Cancelled, "definition changed")
	case unsplit(d, v.Entry):
		s := unhandled(d)
		s.Reason = "the message is for a whole slot, but its job splits slots into shards: the publisher does not support shards"
		return s
	case paused(d, v.Entry):
		return end(d, v, job.Missed, "fell due while its job was paused")
	case pastDeadline(d, v):
		return endByAge(d, v, job.Expired, fmt.Sprintf("not started within its deadline of %v", v.Entry.Job.Deadline))
	case !v.Handles:
		return unhandled(d)
	default:
		return claim(d, v, 1)
	}
}

// called decides about a slot that has stood in its job's line. Before, it had passed the checks of
// first.
func called(d Delivery, v View) Decision {
	switch {
	case tooOld(d, v):
		return endByAge(d, v, outcomeByAge(*v.Record), fmt.Sprintf("older than the horizon of %v", v.Horizon))
	case v.Entry == nil && len(v.Record.Attempts) == 0:
		return end(d, v, job.Cancelled, "job deleted")
	case startsTooLate(v.Record, v):
		return endByAge(d, v, job.Expired, "not started within its deadline")
	case !v.Handles:
		return unhandled(d)
	}
	return claim(d, v, v.Record.Attempt+1)
}

// believed returns the delivery without what its message says and cannot be true. e is the job's definition,
// or nil.
//
// A producer leaves out a planned slot plans.LateAfter after its due time, by its estimate of the broker's
// clock, or because of a pause. If the message of such a slot was stored earlier, doubted is true: then the
// plan and the pauses of the job decide, as if the message named no definition. A planned slot is never
// refused, it follows from no other if its job does not, and it is due when its plan says.
func believed(d Delivery, e *plans.Entry) (_ Delivery, doubted bool) {
	planned := d.Slot.Token == "" && !d.Slot.Range
	if planned {
		d.Refused = ""
	}
	if planned && d.Chained && e != nil && len(e.Job.After) == 0 && !e.ChainedAt(d.Slot.At) {
		d.Chained, d.JobRevision = false, 0
		d.Due = plans.Later(d.Due, d.Slot.At)
	}
	if planned && !d.Chained && d.Published.Before(d.Due) && d.Due.After(d.Slot.At) && e != nil {
		d.Due = plannedDue(d, e)
	}
	missed := d.Due.Add(plans.LateAfter / 2)
	if d.Chained {
		missed = d.Slot.At
	}
	triggered := d.Slot.Token != "" && !d.Chained
	if doubted = d.Missed > 0 && !d.Slot.Range && (triggered || d.Published.Before(missed)); doubted {
		d.Missed, d.JobRevision = 0, 0
	}
	return d, doubted
}

// plannedDue returns when a planned slot is due by the plan that was in force at its instant.
func plannedDue(d Delivery, e *plans.Entry) time.Time {
	p, ok := e.PlanAt(d.Slot.At)
	if !ok {
		return d.Due
	}
	s, err := job.ParseSchedule(e.Job.Name, p.Plan)
	if err != nil {
		return d.Due
	}
	return plans.Earlier(d.Due, d.Slot.At.Add(s.Delay()))
}

// isRefused reports whether the run cannot start. Two publishers say so: a producer of a run whose message
// is too large for a payload, and a sweep of a run whose message was lost.
func isRefused(d Delivery, v View) bool {
	if d.Event {
		return d.Refused != "" && v.Entry != nil && !v.Entry.PlanOf(d.Due).On.IsZero()
	}
	return d.Refused != "" && d.Offer > 0
}

// retry decides about a slot whose last attempt failed.
func retry(d Delivery, v View) Decision {
	wait := untilRetry(v)
	switch {
	case tooOld(d, v):
		return endByAge(d, v, job.Failed, fmt.Sprintf("retries end at the horizon of %v; last error: %s", v.Horizon, v.Record.Error))
	case v.Record.Attempt >= codec.MaxClaims:
		return end(d, v, job.Failed, v.Record.Error+spent(*v.Record))
	case startsTooLate(v.Record, v):
		return endByAge(d, v, job.Expired, "not started within its deadline")
	case wait > 0:
		return Decision{Action: Later, Delay: wait}
	case !v.Handles:
		return unhandled(d)
	default:
		return claim(d, v, v.Record.Attempt+1)
	}
}

// untilRetry returns how long the slot still waits for its next attempt. If the clock is well
// before the end of the last attempt, it was set back. RetryAt is then meaningless, and the slot
// does not wait: the broker has already delayed its message.
func untilRetry(v View) time.Duration {
	if n := len(v.Record.Attempts); n > 0 && v.Record.Attempts[n-1].Finished.Sub(v.Now) > setBack {
		return 0
	}
	return RetryWait(*v.Record, v.Now)
}

// RetryWait returns the delay with which the slot's message is nacked at now. It is at most the
// delay that was chosen when the last attempt ended, even if the clock was changed since, and at
// most longestWait.
func RetryWait(r job.Record, now time.Time) time.Duration {
	wait := min(r.RetryAt.Sub(now), longestWait)
	if n := len(r.Attempts); n > 0 {
		wait = min(wait, r.RetryAt.Sub(r.Attempts[n-1].Finished))
	}
	return wait
}

// setBack bounds the difference between two nodes' estimates of the broker's clock. A larger
// difference means that a clock was set back.
const setBack = time.Minute

// adopt decides about a slot that this worker has claimed, but that is not in flight. No handler
// has started under that claim, so the new claim does not count as another attempt.
func adopt(d Delivery, v View) Decision {
	released := Release(*v.Record, v.Now)
	switch {
	case tooOld(d, v), startsTooLate(&released, v):
		v.Record = &released
		return retry(d, v)
	case !v.Handles:
		return unhandled(d)
	}
	return claim(d, v, v.Record.Attempt)
}

// startsTooLate reports whether a slot that was claimed and released is past the deadline for its
// first start.
func startsTooLate(r *job.Record, v View) bool {
	return r.Attempt == 0 && !r.StartBy.IsZero() && v.certain().After(r.StartBy)
}

// takeOver decides about a running slot whose node is dead, or does not hold the claim.
func takeOver(d Delivery, v View) Decision {
	died := died(v)
	v.Record = &died
	switch {
	case died.Attempt >= min(died.MaxAttempts, codec.MaxClaims):
		return end(d, v, job.Failed, died.Error+spent(died))
	case tooOld(d, v):
		return endByAge(d, v, job.Failed, fmt.Sprintf("%s; retries end at the horizon of %v", died.Error, v.Horizon))
	case !v.Handles:
		return unhandled(d)
	default:
		return claim(d, v, died.Attempt+1)
	}
}

// Disowned reports whether the live owner of the view's record does not hold its claim. answer
// is the owner's answer to a HoldsRequest; err is the error if there was no answer. An error
// proves nothing, however old the slot is, because a handler may run for any length of time. If the
// owner answers that the handler has outlived its context, the slot may end past its horizon.
func Disowned(d Delivery, v View, answer exchange.HoldsAnswer, err error) bool {
	switch {
	case err != nil:
		return false
	case !answer.Holds:
		return true
	}
	return answer.Ended && tooOld(d, v) && !v.Implausible
}

// died returns the view's record with its attempt closed, because its node is dead or does not hold
// the claim.
func died(v View) job.Record {
	r := *v.Record
	r.Attempts = slices.Clone(r.Attempts)
	r.Error = fmt.Sprintf("worker %s died", r.Node)
	if v.Disowned {
		r.Error = fmt.Sprintf("worker %s does not hold its claim", r.Node)
	}
	closeAttempt(&r, v.Revision, v.Now)
	return r
}

// unhandled returns the nak of a slot for which this worker has no handler, so that another worker
// can take it. The first delays are short, because a rolling upgrade may soon start a worker with
// the handler. Later delays are a minute. They grow slowly, because a slot may come to workers without
// the handler many times in a row: those with it have no free places, while these always have.
func unhandled(d Delivery) Decision {
	return Decision{Action: Later, Delay: min(200*time.Millisecond<<min((d.Count-1)/4, 9), time.Minute)}
}

// claim decides to claim the slot. Once the record of the decision is written, the worker owns the
// slot.
//
// A slot of a guarded job must hold a place in the job's lock before its first claim. It keeps
// the place until its outcome. The worker still asks the lock before every claim, because a lock
// can be lost and a policy can be edited.
//
// A shard is claimed only after the record of its whole slot exists.
func claim(d Delivery, v View, attempt int) Decision {
	if s, decided := decideByWhole(d, v); decided {
		return s
	}
	if (v.Entry == nil || v.Entry.Job.Guarded()) && v.Admission.Kind != AdmissionGranted {
		return unplaced(d, v)
	}
	switch w := v.Whole.Record; {
	case d.Slot.Shards > 0 && w == nil:
		return Decision{Action: WriteWhole, Record: newWhole(d)}
	case d.Slot.Shards > 0 && w.State == job.Waiting:
		begun := *w
		begun.State, begun.Node, begun.StartBy, begun.OnTime = job.Running, "", time.Time{}, false
		return Decision{Action: WriteWhole, Record: begun}
	}
	r := record(d, v)
	if r.MaxAttempts == 0 {
		r.MaxAttempts = job.DefaultAttempts
		if v.Entry != nil {
			r.MaxAttempts = v.Entry.Job.WithDefaults().Retry.Attempts
		}
	}
	if v.Record == nil {
		r.StartBy = deadlineOf(d, v)
	}
	if attempt == r.Attempt && len(r.Attempts) > 0 {
		r.Attempts = r.Attempts[:len(r.Attempts)-1]
	}
	r.State, r.Node, r.Attempt = job.Running, v.Self, attempt
	if n := len(r.Attempts); n > 0 && r.Output != "" {
		r.Attempts[n-1].Output = r.Output
	}
	r.OnTime, r.RetryAt, r.Error, r.Output = false, time.Time{}, "", "" // the last attempt's; r.Attempts keeps them
	r.Attempts = history(append(r.Attempts, job.Attempt{Number: attempt, Node: v.Self, Started: started(d, v).UTC()}))
	return Decision{Action: Start, Record: r}
}

// started returns the start time of an attempt that is claimed now. If the broker's timestamp of
// the message is later than v.Now by no more than the clock's error, the start is that timestamp:
// an attempt cannot start before its message was stored.
func started(d Delivery, v View) time.Time {
	if by := d.Published.Sub(v.Now); 0 < by && by <= v.Error {
		return d.Published
	}
	return v.Now
}

// unplaced decides about a slot that could be claimed if it had a place in the job's lock.
func unplaced(d Delivery, v View) Decision {
	switch v.Admission.Kind {
	case AdmissionQueued:
		return stand(d, v)
	case AdmissionSkipped:
		return end(d, v, job.Skipped, fmt.Sprintf("slot %s was in its way (overlap: %s)", v.Admission.InWay, v.Entry.Job.WithDefaults().Overlap))
	case AdmissionReplaced:
		if d.Slot.Shards > 0 && v.Whole.Record != nil {
			return Decision{Action: WriteWhole, Record: MarkWhole(*v.Whole.Record, ReplacedBy(v.Admission.InWay))}
		}
		return end(d, v, job.Cancelled, ReplacedBy(v.Admission.InWay).Error())
	}
	return Decision{Action: Enter}
}
