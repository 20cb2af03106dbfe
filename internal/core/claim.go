package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Delivery is a slot message as the broker handed it to a worker.
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
	// estimate. Doubted is true if Now is not plausible. Then no slot ends because of its
	// age.
	Now     time.Time
	Error   time.Duration
	Doubted bool

	// Self is the worker's node.
	Self string

	Horizon time.Duration

	// Record is the slot's record, or nil. Revision is that of its key.
	Record   *job.Record
	Revision uint64

	// OwnerDead is true if the record's node is fenced or has stopped.
	OwnerDead bool

	// Disowned is true if the record's node is alive but does not hold the claim: it has
	// answered so, or it has not answered and the slot is past its horizon.
	Disowned bool

	// Entry is the job's definition, at least as new as that of the message. It is nil if the
	// registry's leader has answered that the job was deleted.
	Entry *Entry

	// Handles is true if this worker has a handler for the job.
	Handles bool

	// Whole is the whole slot of a part.
	Whole Whole

	// Place is the verdict of the job's lock. It stays PlaceUnasked for jobs that are not
	// Guarded.
	Place Place
}

// certain returns the time that the broker's clock has certainly reached.
func (v View) certain() time.Time { return v.Now.Add(-v.Error) }

// Action is the next step of a worker with a delivery.
type Action int

const (
	// Ack: the slot has its outcome; ack the message.
	Ack Action = iota
	// Later: nak the message with Step.Delay.
	Later
	// Prove: find out whether the record's node is dead, then decide again.
	Prove
	// LearnWhole: read the record of the whole slot, then decide again.
	LearnWhole
	// WriteWhole: write Step.Record, that of the whole slot, at its revision. Then read it
	// and decide again.
	WriteWhole
	// Conclusion: conclude the whole slot if all its parts have ended; then Ack.
	Conclusion
	// Enter: acquire the job's lock, then decide again.
	Enter
	// Wait: keep the message until the job's lock admits the slot, then decide again.
	Wait
	// Start: write Step.Record at the view's revision. If the write is accepted, start the
	// handler.
	Start
	// End: write Step.Record, an outcome, at the view's revision; then Ack.
	End
)

// Step is the result of Decide.
type Step struct {
	Action Action
	Delay  time.Duration
	Record job.Record

	// Reason is why a Later needs attention. Empty: it does not.
	Reason string
}

// Decide returns the next step of a worker with a delivered slot. It holds all rules of claims.
// The caller must not call it for a slot that is in flight in its own process.
func Decide(d Delivery, v View) Step {
	switch {
	case v.Record == nil:
		return first(d, v)
	case v.Record.State.Final():
		return Step{Action: Ack}
	case v.Record.Shards > 0:
		return Step{Action: Conclusion} // its parts do the work
	case v.Record.State == job.Retrying:
		return retry(d, v)
	case v.Record.Node == v.Self:
		return adopt(d, v)
	case !v.OwnerDead && !v.Disowned:
		return Step{Action: Prove}
	default:
		return takeOver(d, v)
	}
}

// NeedsDefinition reports whether the result of Decide depends on the job's definition. It does
// not for a slot that has ended, or that ends in any case. So such a slot ends even if the
// definition cannot be read.
func NeedsDefinition(d Delivery, v View) bool {
	if v.Record != nil && v.Record.State.Final() {
		return false
	}
	return !tooOld(d, v) && (v.Record != nil || d.Missed == 0 && d.Refused == "")
}

// first decides about a slot without a record. Before the slot's instant it always waits: an early
// message may be false, and an outcome that it causes would end the real slot. Nor does it drop
// the message, since the stream may have dropped the real one as its duplicate.
func first(d Delivery, v View) Step {
	switch {
	case early(d, v) > 0 && (d.Slot.Range || !tooOld(d, v)):
		return Step{Action: Later, Delay: min(early(d, v), longestWait)}
	case d.Missed > 0 && d.Chained:
		return end(d, v, job.Missed, "its turn came while its job was paused")
	case d.Missed > 0:
		return end(d, v, job.Missed, "not published in time, and left out by the catch-up policy")
	case d.Refused != "":
		return end(d, v, job.Failed, d.Refused)
	case tooOld(d, v):
		return aged(d, v, job.Expired, fmt.Sprintf("older than the horizon of %v", v.Horizon))
	case len(d.Payload) > job.MaxPayload: // Cronce does not publish it, and a record cannot hold it
		return end(d, v, job.Cancelled, fmt.Sprintf("payload of %d bytes: at most %d", len(d.Payload), job.MaxPayload))
	case v.Entry == nil:
		return end(d, v, job.Cancelled, "job deleted")
	case splitOtherwise(d, v.Entry):
		return Step{Action: Ack} // the parts in the current plan have their own messages
	case !belongs(d, v.Entry):
		return end(d, v, job.Cancelled, "definition changed")
	case unsplit(d, v.Entry):
		s := unhandled(d)
		s.Reason = "it asks for the whole of a slot that is split: that is run in parts only, whose messages a producer that knows of parts sends"
		return s
	case paused(d, v.Entry):
		return end(d, v, job.Missed, "fell due while its job was paused")
	case pastDeadline(d, v):
		return aged(d, v, job.Expired, fmt.Sprintf("not started within its deadline of %v", v.Entry.Job.Deadline))
	case !v.Handles:
		return unhandled(d)
	default:
		return claim(d, v, 1)
	}
}

// retry decides about a slot whose last attempt failed.
func retry(d Delivery, v View) Step {
	wait := untilRetry(v)
	switch {
	case tooOld(d, v):
		return aged(d, v, job.Failed, fmt.Sprintf("retries end at the horizon of %v; last error: %s", v.Horizon, v.Record.Error))
	case v.Record.Attempt >= codec.MaxClaims:
		return end(d, v, job.Failed, v.Record.Error+spent(*v.Record))
	case startsTooLate(v.Record, v):
		return aged(d, v, job.Expired, "not started within its deadline")
	case wait > 0:
		return Step{Action: Later, Delay: wait}
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

// setBack is more than the estimates of the broker's clock on two nodes differ.
const setBack = time.Minute

// adopt decides about a claim of this worker that is not in flight. No handler has started by it,
// so the attempt is not counted again.
func adopt(d Delivery, v View) Step {
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
func takeOver(d Delivery, v View) Step {
	died := died(v)
	v.Record = &died
	switch {
	case died.Attempt >= min(died.MaxAttempts, codec.MaxClaims):
		return end(d, v, job.Failed, died.Error+spent(died))
	case tooOld(d, v):
		return aged(d, v, job.Failed, fmt.Sprintf("%s; retries end at the horizon of %v", died.Error, v.Horizon))
	case !v.Handles:
		return unhandled(d)
	default:
		return claim(d, v, died.Attempt+1)
	}
}

// Disowned reports whether the live owner of the view's record does not run the slot, by its answer
// to a HoldsRequest, or by the error in place of one. From an error nothing follows, since a handler
// may run for any time. But past the horizon the slot ends, unless the owner answers that a handler
// with a live context runs it.
func Disowned(d Delivery, v View, answer HoldsAnswer, err error) bool {
	switch {
	case err == nil && !answer.Holds:
		return true
	case err == nil && !answer.Ended:
		return false
	}
	return tooOld(d, v) && !v.Doubted
}

// died returns the record of a slot that its node does not run any more, with the attempt closed.
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

// tooOld reports whether the slot is past the horizon (invariant 7). The retention of the ledger may
// have removed its record, so it must not run.
func tooOld(d Delivery, v View) bool {
	start := d.began()
	for _, r := range []*job.Record{v.Record, v.Whole.Record} {
		if r != nil && !r.Published.IsZero() && Began(*r).Before(start) {
			start = Began(*r)
		}
	}
	return v.certain().Sub(start) > v.Horizon
}

// PastHorizon reports whether the slot is older than the horizon, by its message alone.
func PastHorizon(d Delivery, now time.Time, horizon time.Duration) bool {
	return now.Sub(d.began()) > horizon
}

// began returns when the slot's age begins, by its message.
func (d Delivery) began() time.Time { return began(d.Slot, d.Event, d.Due, d.Published) }

// Began returns when the age of a record's slot begins. Publishing the slot again, after a loss or by
// an operator, does not change it.
func Began(r job.Record) time.Time { return began(r.Slot, r.Event, r.Due, r.Published) }

// began returns the slot's instant, or the publication of a triggered run. A run that a stream's
// message started is as old as that message, since a consumer that was created again delivers old
// messages again.
func began(s job.Slot, event bool, due, published time.Time) time.Time {
	switch {
	case !s.At.IsZero():
		return s.At
	case event && !due.IsZero() && due.Before(published):
		return due
	}
	return published
}

// longestWait is the longest delay of a nak for a slot whose time has not come. It is bounded
// because the clock may be changed meanwhile. doubtWait is the delay for a slot that would end by
// its age while the clock is doubted.
const (
	longestWait = time.Hour
	doubtWait   = 30 * time.Second
)

// early returns how long the slot must still wait. If the broker stored the message before the due
// time, the producer's clock was fast, and the slot waits. A range is due with its last slot.
// The due time of a chained slot comes from the clock of the worker that wrote an outcome, so it
// does not delay the slot. A chained slot waits for its instant instead, which is that of the
// slots that it follows.
func early(d Delivery, v View) time.Duration {
	due := d.Due
	switch {
	case d.Chained:
		due = d.Slot.At
	case d.Slot.Range && d.MissedLast.After(due):
		due = d.MissedLast
	}
	if d.Published.Before(due) {
		return due.Sub(v.certain())
	}
	return 0
}

// belongs reports whether the slot is in the plan that was in force at its instant. If the message
// was computed from this definition or a newer one, it belongs. A chained slot has the instant of
// another job, so it belongs as long as this job comes after any job.
func belongs(d Delivery, e *Entry) bool {
	switch {
	case d.JobRevision >= e.Revision:
		return true
	case len(e.Job.After) > 0:
		return true
	case d.Chained:
		return false
	case d.Slot.Token != "":
		return true
	}
	p, ok := e.PlanAt(d.Slot.At)
	if !ok {
		return false
	}
	s, err := job.ParseSchedule(e.Job.Name, p.Plan)
	return err == nil && s.Includes(d.Slot.At)
}

// splitOtherwise reports whether the slot is in its job's plan, but the plan splits it into other
// parts. The producer of such a message lags behind an edit of the plan.
func splitOtherwise(d Delivery, e *Entry) bool {
	if d.Slot.Token != "" || d.Chained || d.JobRevision >= e.Revision || !belongs(d, e) {
		return false
	}
	p, _ := e.PlanAt(d.Slot.At)
	return p.Plan.Shards != d.Slot.Shards
}

// unsplit reports whether the message is for a whole slot although its job splits slots. Its
// publisher does not support parts. If a worker ran the message, the parts could never run. If it
// acked the message and no other producer published the parts, the slot would be lost.
//
// The plan in force at a planned slot's instant applies, and for a run that a stream's message
// started, the plan in force at that message's time. A triggered or chained run by an older
// definition is valid as it is. If the message names no definition, the current one applies.
func unsplit(d Delivery, e *Entry) bool {
	planned := d.Slot.Token == "" && !d.Chained
	if d.Event {
		return d.Slot.Shards == 0 && e.planOf(d.Due).Shards > 0
	}
	if d.Slot.Shards > 0 || !planned && 0 < d.JobRevision && d.JobRevision < e.Revision {
		return false
	}
	if p, ok := e.PlanAt(d.Slot.At); ok && planned {
		return p.Plan.Shards > 0
	}
	return e.Job.Shards > 0
}

// PlanAt returns the plan that was in force at the instant, and false if there was none.
func (e Entry) PlanAt(at time.Time) (PastPlan, bool) {
	for i := range e.Past { // does not copy e.Past: each slot calls this several times
		if p := &e.Past[i]; at.After(p.From) && (p.To.IsZero() || !at.After(p.To)) {
			return *p, true
		}
	}
	if since := e.Since(); at.After(since) {
		return PastPlan{Plan: e.Job.Plan(), From: since}, true
	}
	return PastPlan{}, false
}

// paused reports whether the slot fell due in a pause that its producer did not know of. If the
// producer knew of the pause, it applied the catch-up policy after the end of the pause.
func paused(d Delivery, e *Entry) bool {
	if d.Slot.Token != "" && !d.Chained || d.JobRevision >= e.Revision {
		return false
	}
	w, in := e.PausedAt(d.Due)
	return in && (!d.CaughtUp || w.To.IsZero())
}

func pastDeadline(d Delivery, v View) bool {
	by, ok := startBy(d, v)
	return ok && v.certain().After(by)
}

// StartBy returns the deadline for the slot's first start, and false if its job has none.
func StartBy(d Delivery, e Entry) (time.Time, bool) {
	from := d.Due
	if d.CaughtUp || d.Backfill || d.Chained || from.IsZero() {
		from = d.Published
	}
	return from.Add(e.Job.Deadline), e.Job.Deadline > 0
}

func startBy(d Delivery, v View) (time.Time, bool) {
	if v.Entry == nil {
		return time.Time{}, false
	}
	return StartBy(d, *v.Entry)
}

// unhandled naks a slot for a worker that has a handler. The first delays are short, since a
// rolling upgrade may bring such a worker. The last ones are a minute.
func unhandled(d Delivery) Step {
	return Step{Action: Later, Delay: min(100*time.Millisecond<<min(d.Count, 10), time.Minute)}
}

// claim returns the step that claims the slot. Once its record is written, the worker owns the
// slot.
//
// A slot of a guarded job must hold a place in the job's lock before its first claim. It keeps
// the place until its outcome. The worker still asks the lock before every claim, because a lock
// can be lost and a policy can be edited.
//
// A shard is claimed only after the record of its whole slot exists.
func claim(d Delivery, v View, attempt int) Step {
	if s, decided := divided(d, v); decided {
		return s
	}
	if (v.Entry == nil || v.Entry.Job.Guarded()) && v.Place.Kind != PlaceHeld {
		return unplaced(d, v)
	}
	if d.Slot.Shards > 0 && v.Whole.Record == nil {
		return Step{Action: WriteWhole, Record: split(d)}
	}
	r := record(d, v)
	if r.MaxAttempts == 0 {
		r.MaxAttempts = job.DefaultAttempts
		if v.Entry != nil {
			r.MaxAttempts = v.Entry.Job.WithDefaults().Retry.Attempts
		}
	}
	if by, ok := startBy(d, v); ok && v.Record == nil && by.Year() <= 9999 {
		r.StartBy = by.UTC()
	}
	if attempt == r.Attempt && len(r.Attempts) > 0 {
		r.Attempts = r.Attempts[:len(r.Attempts)-1]
	}
	r.State, r.Node, r.Attempt = job.Running, v.Self, attempt
	r.RetryAt, r.Error, r.Output = time.Time{}, "", "" // the last attempt's; r.Attempts keeps the error
	r.Attempts = history(append(r.Attempts, job.Attempt{Number: attempt, Node: v.Self, Started: started(d, v).UTC()}))
	return Step{Action: Start, Record: r}
}

// started returns the start of an attempt that is claimed now. It is not before the broker's
// timestamp on the delivered message, within the error of the clock.
func started(d Delivery, v View) time.Time {
	if by := d.Published.Sub(v.Now); 0 < by && by <= v.Error {
		return d.Published
	}
	return v.Now
}

// unplaced decides about a slot that could be claimed if it had a place in the job's lock.
func unplaced(d Delivery, v View) Step {
	switch v.Place.Kind {
	case PlaceWaits, PlaceCrowded:
		return Step{Action: Wait}
	case PlaceBarred:
		return end(d, v, job.Skipped, fmt.Sprintf("slot %s was in its way (overlap: %s)", v.Place.InWay, v.Entry.Job.WithDefaults().Overlap))
	case PlaceDisplaced:
		if d.Slot.Shards > 0 && v.Whole.Record != nil {
			return Step{Action: WriteWhole, Record: MarkWhole(*v.Whole.Record, ReplacedBy(v.Place.InWay))}
		}
		return end(d, v, job.Cancelled, ReplacedBy(v.Place.InWay).Error())
	}
	return Step{Action: Enter}
}

// ReplacedBy returns the cause of the end of a slot that the newer slot s replaces. It wraps
// ErrReplaced.
func ReplacedBy(s job.Slot) error { return fmt.Errorf("%w by %s", job.ErrReplaced, s) }

// end returns the step that writes an outcome without a run. If the slot is a shard, and no part
// of its whole slot has begun, the whole slot ends.
func end(d Delivery, v View, outcome job.State, reason string) Step {
	if s, decided := divided(d, v); decided {
		return s
	}
	if d.Slot.Shards > 0 && v.Whole.Record == nil && v.Record == nil {
		return Step{Action: WriteWhole, Record: wholeEnd(d, v, outcome, reason)}
	}
	return Step{Action: End, Record: ended(record(d, v), v, outcome, reason)}
}

// aged ends a slot because of its age. While the clock is doubted the slot waits instead, since an
// outcome is final.
func aged(d Delivery, v View, outcome job.State, reason string) Step {
	if v.Doubted {
		return Step{Action: Later, Delay: doubtWait, Reason: "it would end by its age, by a clock that is not believed: " + reason}
	}
	return end(d, v, outcome, reason)
}

// ended returns the record r with an outcome.
func ended(r job.Record, v View, outcome job.State, reason string) job.Record {
	open := r.State == job.Running && len(r.Attempts) > 0 && r.Attempts[len(r.Attempts)-1].Finished.IsZero()
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
		r.Payload = d.Payload
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

// Outlasts reports whether the claim r is still valid although its key has another revision. stands
// is the key's record now, or nil if there is none. If the ledger was purged or an older copy of it
// was restored, stands is nil, this very claim, or a record from before it. Then the claim is
// valid. If another worker has taken the slot over, stands counts more attempts. If the slot has
// ended, or another worker has taken it over, the claim is lost.
func Outlasts(r job.Record, stands *job.Record) bool {
	switch {
	case stands == nil:
		return true
	case stands.State.Final():
		return false
	case stands.State == job.Running && stands.Node == r.Node:
		return stands.Attempt <= r.Attempt
	}
	return stands.Attempt < r.Attempt
}

// Result is the result of an attempt.
type Result struct {
	// Err is the handler's error, or nil if it succeeded.
	Err error

	// Stopped is true if the worker ended the attempt because it shuts down. Then the next
	// attempt is not delayed.
	Stopped bool

	// Cancelled is true if the slot was cancelled or replaced during the attempt. Err is the
	// cause: see Ended. If the handler returned nil all the same, the slot succeeded.
	Cancelled bool

	// Output is the handler's output, at most Job.Output bytes of it.
	Output string

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
		r.State, r.Finished = job.Succeeded, now.UTC()
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

// history returns the attempts that a record keeps, with the errors of old ones cut. It may change
// its argument.
func history(attempts []job.Attempt) []job.Attempt {
	attempts = codec.Last(attempts, codec.MaxHistory)
	for i := range max(0, len(attempts)-maxRecent) {
		attempts[i].Error = codec.ClipTo(attempts[i].Error, codec.MaxOldBytes)
	}
	return attempts
}

// clipError returns the part of an error that a record keeps. It replaces control characters,
// each of which takes six bytes in JSON.
func clipError(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), 2*maxErrorBytes)], "\uFFFD"))
	return codec.ClipTo(s, maxErrorBytes)
}
