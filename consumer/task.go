package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/consumer/internal/inflight"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// state names the step that a task takes next. A star marks the states that the slot of a job
// with a lock goes through if the lock admits it at once and the handler succeeds. After
// entering, such a slot is deciding again. After running, it is writing again.
//
// The order of the states matters. In a state before preparing, a pending task must acquire a
// permit for a step that blocks. From leaving on, a task only leaves its lock and answers the
// broker.
type state uint8

const (
	arrived          state = iota // * check the message, and enter the slot in the table
	loading                       // * read the record if there may be one, and the definition
	deciding                      // * ask core.Decide, which names the next step
	proving                       //   find out whether the record's owner is dead, or does not hold the claim
	readingWhole                  //   read the record of the whole slot that the shard belongs to
	writingWhole                  //   write it
	entering                      // * ask the job's lock for admission
	preparing                     // * prepare a claim, or an outcome without a run
	writing                       // * send the record: a claim, an outcome, or the result of an attempt
	standing                      //   put the slot into its job's line
	decisionAnswered              // * handle the ledger's answer to the write of a claim, or of an outcome without a run
	running                       // * run the handler, and prepare the record of its result
	resultAnswered                // * handle the ledger's answer to the write of the result
	concludingWhole               //   write the outcome of the whole slot of a shard
	following                     // * publish what follows from the outcome
	leaving                       // * leave the job's lock
	responding                    // * answer the broker
	closed                        //   nothing is left to do
)

// flow is the result of a step. It says how to go on with the task.
type flow uint8

const (
	onward     flow = iota // take the next step
	wouldBlock             // nothing was done: take the step again where it may block
	handed                 // the task is closed, or another goroutine takes the next step, or has taken it already
)

// task handles one delivered message, from its receipt until the message is answered and the
// slot has left its lock.
//
// Only one goroutine at a time may use the task. A step that sends a write, or queues the task
// at the limiter, must not use the task afterwards: another goroutine may take the next step
// before this one returns.
type task struct {
	*Consumer
	state state

	d       core.Delivery
	msg     jetstream.Msg
	readErr error // why the message cannot be read
	message inflight.Message

	// inTable: the slot is in the table, under key. retaken: an earlier task had abandoned it.
	inTable, retaken bool
	key              string

	// asked: the limiter still counts the message as asked for. permit: the task holds a permit
	// of the limiter. pending: it has none and will need one; the limiter counts it as pending.
	// stands: it needs none, since its slot goes into the line; the limiter counts it as standing.
	// unrecorded: its handler has returned, and the limiter counts it as unrecorded until the
	// task is closed. Only the limiter sets permit and pending to true.
	asked, permit, pending, stands, unrecorded bool

	// view is what the task knows of the slot. decision is the last answer of core.Decide.
	// lookupErr is the error of the lookup if the definition is not known. rounds counts the
	// earlier rounds of this delivery, decided the decisions in this round: see maxRounds.
	view            core.View
	rounds, decided int
	decision        core.Decision
	lookupErr       error

	// results are the results of the slots that this slot follows, by job: see Job.After.
	results map[string]json.RawMessage

	// lock is what the task knows of the job's lock.
	lock lockPart

	// fence is the revision of the task's claim; 0: it has none. ending: the record to write is
	// the result of the attempt, or the release of the claim.
	fence  uint64
	ending bool

	// rec is the record that is being written, or was written last. The field at is the
	// revision that the write expects. The write is repeated until ctx ends. answer is the
	// ledger's answer. In the state following, rec and answer.revision are the slot's outcome,
	// whichever worker wrote it. endTrace ends the traced step.
	rec      job.Record
	at       uint64
	ctx      context.Context
	answer   answer
	endTrace func(error)
	retry    *backoff.ExponentialBackOff // between two writes of the attempt's result
	failures int                         // how many of these writes have failed

	// handlerErr is the error of the handler that has returned.
	handlerErr error

	// final: this task has written the slot's outcome. For the task of a shard: the whole slot
	// has its outcome.
	final    bool
	response response

	// next is the task that got this task's permit when the handler returned. The goroutine
	// that runs this task takes the steps of next afterwards.
	next *task

	// ownPanics counts the panics of the worker's own code in this delivery.
	ownPanics int
}

type answer struct {
	revision uint64
	err      error
}

// receive takes in one delivered message. asked is true if the limiter counts it as asked for.
// It does not block.
func (c *Consumer) receive(msg jetstream.Msg, asked bool) {
	c.slots.Add(1)
	t := &task{Consumer: c, msg: msg, asked: asked}
	defer t.recovered()
	t.readErr = t.read()
	c.inflight.Add(&t.message, msg, c.cfg.Now().Sub(t.d.Published))
	if core.IsClosed(c.stopping) || c.limiter.admit(t) {
		t.advance(false)
	}
}

// advance takes the task's steps until another goroutine has the task, or it is closed. If
// mayBlock is false, advance moves the task to a goroutine of the pool before a step that would
// block. If the task has no claim yet, it must acquire a permit first, which bounds the
// goroutines. If the task's handler has returned, advance returns the task that got its permit,
// or nil.
func (t *task) advance(mayBlock bool) (next *task) {
	defer t.recovered()
	for {
		switch t.step(mayBlock) {
		case onward:
			if t.next != nil {
				next, t.next = t.next, nil
			}
		case wouldBlock:
			if !t.pending || t.state >= preparing || t.limiter.acquire(t) {
				t.pool.Do(t.work)
			}
			return next
		case handed:
			return next
		}
	}
}

// step does the work of the current state, which sets the next state.
func (t *task) step(mayBlock bool) flow {
	switch t.state {
	case proving, readingWhole, writingWhole, standing, running, concludingWhole: // each of these may block
		if !mayBlock {
			return wouldBlock
		}
	}
	switch t.state {
	case arrived:
		return t.arrive(mayBlock)
	case loading:
		return t.load(mayBlock)
	case deciding:
		return t.decide(mayBlock)
	case proving:
		return t.prove()
	case readingWhole:
		return t.readWhole()
	case writingWhole:
		return t.writeWhole()
	case entering:
		return t.enter(mayBlock)
	case standing:
		return t.stand()
	case preparing:
		return t.prepareDecision()
	case writing:
		return t.write(mayBlock)
	case decisionAnswered:
		return t.afterDecision(mayBlock)
	case running:
		return t.run()
	case resultAnswered:
		return t.afterResult(mayBlock)
	case concludingWhole:
		return t.concludeWhole()
	case following:
		return t.publishFollowUps(mayBlock)
	case leaving:
		return t.leave()
	case responding:
		return t.respond()
	}
	return handed
}

// noPermitDelay is the delay of a message that returns to the queue because this worker has no
// permit for it, or stops.
const noPermitDelay = 100 * time.Millisecond

// resume goes on with a task that has waited for a permit. If the task got none, it releases its
// claim, or returns the message to the queue: another worker may have a free permit.
func (t *task) resume() {
	defer t.recovered()
	switch {
	case t.permit:
	case t.fence != 0:
		t.releaseClaim()
	default:
		t.respondWith(later(noPermitDelay))
	}
	t.advance(false)
}

// work takes the task's steps on a goroutine of the pool. Then it takes the steps of the task
// that got the permit, and so on. That saves a switch of goroutines for each task.
func (t *task) work() {
	for t != nil {
		t = t.advance(true)
	}
}

// passOn moves the task that got this task's permit to another goroutine.
func (t *task) passOn() {
	if next := t.next; next != nil {
		t.next = nil
		next.pool.Do(next.work)
	}
}

// respondWith sets the answer to the broker. The next step sends it.
func (t *task) respondWith(r response) flow {
	t.response, t.state = r, responding
	return onward
}

// close releases everything that the task holds.
func (t *task) close() flow {
	if t.state == closed {
		return handed
	}
	t.state = closed
	t.leaveTable()
	if t.unrecorded {
		<-t.limiter.unrecorded
	}
	if t.asked {
		t.limiter.forget(1)
	}
	if t.stands {
		t.limiter.stood()
	}
	if t.permit || t.pending {
		t.releasePermit()
	}
	t.inflight.Remove(&t.message)
	t.slots.Done()
	return handed
}

// leaveTable removes the slot from the table.
func (t *task) leaveTable() {
	if t.inTable {
		t.cfg.Table.remove(t.key)
		t.inTable = false
	}
}

// releasePermit releases the permit of a task that needs none now.
func (t *task) releasePermit() {
	switch {
	case t.permit:
		t.permit = false
		if next := t.limiter.release(); next != nil {
			next.pool.Do(next.work)
		}
	case t.pending:
		t.limiter.withdraw(t)
	}
}

// recovered is deferred in every function that takes steps of a task. If the worker's own code
// panics, on any goroutine, only this task is affected: see fail.
func (t *task) recovered() {
	if p := recover(); p != nil {
		t.fail(p)
	}
}

// maxOwnPanics bounds the panics of the worker's own code in one delivery.
const maxOwnPanics = 3

// fail handles a panic in the worker's own code. If the task was already answering the broker, or
// leaving its lock, fail only closes it. If the task has no claim and the slot is past the horizon,
// fail drops the message. If the result of the attempt may have been sent, fail writes the same
// record again. If the task has a claim, and no result was sent, fail records a failed attempt.
// Otherwise it postpones the slot. After more than maxOwnPanics panics it closes the task without
// an answer to the broker. Then a claimed slot stays in the table until it is past the horizon: its
// handler may have started, and the next delivery would start it again under the same attempt.
func (t *task) fail(p any) {
	err := panicked(p)
	t.cfg.Logger.Error("handling a slot panicked", "slot", t.d.Slot.ID(), "subject", t.msg.Subject(), "error", err)
	t.passOn()
	switch t.ownPanics++; {
	case t.state >= leaving:
		t.close()
		return
	case t.ownPanics > maxOwnPanics:
		t.cfg.Logger.Error("the failure of a slot cannot be recorded", "slot", t.d.Slot.ID(), "error", err)
		if t.inTable && t.fence != 0 {
			t.cfg.Table.abandon(t.key)
			t.inTable = false
		}
		t.close()
		return
	}
	defer t.recovered()
	switch {
	case t.fence == 0 && core.PastHorizon(t.d, t.cfg.Now(), t.horizon()):
		t.respondWith(drop(err.Error()))
	case t.fence == 0 || t.ending && (t.answer.revision != 0 || core.Released(t.rec)):
		t.postpone(err) // the next delivery goes on from the record
	case t.ending && (t.state == writing || t.answer.err != nil):
		t.state = writing
	default:
		t.handlerErr = err
		claim := t.decision.Record
		result := core.Result{Err: err, Backoff: delay(t.policies().Retry, claim.Attempt)}
		t.complete(t.cfg.Life, core.Complete(claim, t.fence, t.cfg.Now(), t.horizon(), result))
	}
	t.advance(false)
}

// horizon returns the age past which slots end. While the clock is not plausible, no slot is
// too old.
func (c *Consumer) horizon() time.Duration {
	if c.cfg.Plausible() != nil {
		return math.MaxInt64
	}
	return c.cfg.Horizon
}

// read parses the message into t.d.
func (t *task) read() error {
	meta, err := t.msg.Metadata()
	if err != nil {
		return err // not a JetStream message
	}
	t.d = core.Delivery{Queue: t.cfg.Queue, Payload: t.msg.Data(), Published: meta.Timestamp, Count: int(min(meta.NumDelivered, math.MaxInt32))}
	if t.d.Message, err = core.ParseMessage(t.msg.Headers()); err != nil {
		return err
	}
	return t.d.CheckSubject(t.msg.Subject())
}

// arrive enters the slot in the table.
func (t *task) arrive(mayBlock bool) flow {
	if core.IsClosed(t.stopping) {
		return t.respondWith(later(noPermitDelay)) // the delay keeps the message from coming back to this worker's own open request
	}
	if t.readErr != nil {
		if !mayBlock {
			return wouldBlock
		}
		return t.refuseUnreadable()
	}
	t.key = t.d.Slot.Key()
	var owner string
	owner, t.inTable = t.cfg.Table.take(t.key, t.cfg.Node.Name())
	if !t.inTable && core.PastHorizon(t.d, t.cfg.Now().Add(-t.cfg.ClockError()), t.horizon()) {
		t.retaken = t.cfg.Table.retake(t.key, t.cfg.Node.Name())
		t.inTable = t.retaken
	}
	if t.inTable {
		t.state = loading
		return onward
	}
	if owner == t.cfg.Node.Name() {
		return t.respondWith(silence) // this node has another delivery of it in flight
	}
	return t.respondWith(later(t.cfg.Lease / 4)) // a handler of an older incarnation has not returned
}

// refuseUnreadable ends a delivery whose message this program cannot read. A newer program may
// be able to read it, so the message returns to the queue until it is past the horizon. A
// message that contradicts itself is invalid for every program, and is dropped at once.
func (t *task) refuseUnreadable() flow {
	if errors.Is(t.readErr, exchange.ErrContradicts) || t.cfg.Now().Sub(t.d.Published) > t.horizon() {
		return t.respondWith(drop(t.readErr.Error()))
	}
	if t.d.Count <= 2 { // the message may be delivered again and again until it is past the horizon
		t.cfg.Logger.Warn("message cannot be read; left for a newer node", "subject", t.msg.Subject(), "error", t.readErr, "list_all", "cronce doctor")
	}
	return t.respondWith(later(min(time.Second<<min(t.d.Count, 10), time.Minute)))
}
