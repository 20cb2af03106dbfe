package consumer

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// state names the step that a task takes next. A star marks the states of a slot of a job with
// a lock, which is admitted at once and succeeds. After entering it is deciding again, and after
// running it is writing again.
type state uint8

const (
	arrived    state = iota // * check the message, and enter the slot in the table
	looking                 // * read the record if there may be one, and the definition
	deciding                // * ask core.Decide, which names the next step
	proving                 //   ask whether the record's owner has left the slot
	dividing                //   read or write the record of the whole slot of a shard
	entering                // * ask the job's lock for admission
	waiting                 //   wait until the lock may admit the slot
	claiming                // * prepare a claim, or an outcome without a run
	writing                 // * send the record: a claim, an outcome, or the result of an attempt
	claimed                 // * handle the answer to the write of a claim, or an outcome without a run
	running                 // * run the handler, and prepare the record of its result
	recorded                // * handle the answer to the write of the result
	concluding              //   write the outcome of the whole slot of a shard
	following               // * publish what follows from the outcome
	settling                // * answer the broker
	leaving                 // * leave the job's lock
	closed                  //   nothing is left to do
)

// progress is what a step says about the next one.
type progress uint8

const (
	onward progress = iota // take the next step
	blocks                 // nothing was done: take the step again where it may block
	handed                 // another goroutine has the task by now, or will have it; or it is closed
)

// task is one delivered message, from its receipt to its verdict.
//
// One goroutine at a time has the task. A step that hands a write over, or waits for the
// limiter, gives the task away: the answer may come before that step returns.
type task struct {
	*Consumer
	state state

	d       core.Delivery
	msg     jetstream.Msg
	unread  error // why the message cannot be read
	message inflightMsg

	// owed: the slot is in the table, under key.
	owed bool
	key  string

	// permit: the task holds a permit of the limiter. ahead: it has none and will need one; the
	// limiter counts it as pending. unrecorded: its handler has returned and its outcome is not
	// stored. Only the limiter sets permit and ahead to true.
	permit, ahead, unrecorded bool

	// view is what the task knows of the slot. decision is the last answer of core.Decide.
	// undefined is the error of the lookup if the definition is not known. looks counts the
	// earlier looks in this delivery, decided the decisions in this look.
	view           core.View
	looks, decided int
	decision       core.Step
	undefined      error

	// lock is what the task knows of the job's lock.
	lock lockPart

	// fence is the revision of the task's claim; 0: it has none. ending: the record to write is
	// the result of the attempt, or the release of the claim.
	fence  uint64
	ending bool

	// rec is the record that is being written, or was written last. It is written over revision
	// at, and the write is repeated until ctx ends. answer is the ledger's answer. In the state
	// following, rec and answer.revision are the slot's outcome, whichever worker wrote it.
	// endTrace ends the traced step.
	rec      job.Record
	at       uint64
	ctx      context.Context
	answer   answer
	endTrace func(error)
	retry    *backoff.ExponentialBackOff // between writes of the end of the attempt

	// final: this task has written the slot's outcome. For the task of a shard: the whole slot
	// has its outcome. Then the task takes the slot out of its lock.
	final   bool
	verdict verdict

	// next is the task that got this one's permit when the handler returned. The goroutine of
	// this task takes its steps.
	next *task

	// failures counts the panics around the slot.
	failures int
}

type answer struct {
	revision uint64
	err      error
}

// receive takes in one delivered message. It does not block.
func (c *Consumer) receive(msg jetstream.Msg) {
	c.slots.Add(1)
	t := &task{Consumer: c, msg: msg}
	defer t.recovered()
	t.unread = t.read()
	c.inflight.add(&t.message, msg, c.cfg.Now().Sub(t.d.Published))
	if isClosed(c.stopping) || c.limiter.admit(t) {
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
		case blocks:
			if !t.ahead || t.state >= claiming || t.limiter.acquire(t) {
				t.pool.do(t.work)
			}
			return next
		case handed:
			return next
		}
	}
}

// step takes one step.
func (t *task) step(mayBlock bool) progress {
	switch t.state {
	case proving, dividing, waiting, running, concluding: // these always may block
		if !mayBlock {
			return blocks
		}
	}
	switch t.state {
	case arrived:
		return t.arrive(mayBlock)
	case looking:
		return t.look(mayBlock)
	case deciding:
		return t.decide(mayBlock)
	case proving:
		return t.prove()
	case dividing:
		return t.divide()
	case entering:
		return t.enter(mayBlock)
	case waiting:
		return t.wait()
	case claiming:
		return t.claim()
	case writing:
		return t.write(mayBlock)
	case claimed:
		return t.goOn(mayBlock)
	case running:
		return t.run()
	case recorded:
		return t.finish(mayBlock)
	case concluding:
		return t.concludeWhole()
	case following:
		return t.follow(mayBlock)
	case settling:
		return t.settle()
	case leaving:
		return t.leave(mayBlock)
	}
	return handed
}

// resume goes on with a task that has waited for a permit. If the task got none, it releases
// its claim or gives the message back, since another worker may have a permit.
func (t *task) resume() {
	defer t.recovered()
	switch {
	case t.permit:
	case t.fence != 0:
		t.release()
	default:
		t.end(later(tooMany))
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

// passOn starts the task that got the permit of this one on another goroutine.
func (t *task) passOn() {
	if next := t.next; next != nil {
		t.next = nil
		next.pool.do(next.work)
	}
}

// end sets the verdict on the message. The next step is to settle it.
func (t *task) end(v verdict) progress {
	t.verdict, t.state = v, settling
	return onward
}

// postpone ends a delivery that met an error of the broker. The message is given back with a
// delay, and its next delivery goes on from what is stored.
func (t *task) postpone(err error) progress {
	if t.cfg.Node.Context().Err() != nil {
		return t.end(silence)
	}
	t.cfg.Logger.Warn("slot postponed", "slot", t.d.Slot.ID(), "error", err)
	return t.end(later(min(time.Second<<min(t.d.Count, 5), 30*time.Second)))
}

// close releases everything that the task holds.
func (t *task) close() progress {
	if t.state == closed {
		return handed
	}
	t.state = closed
	if t.owed {
		t.cfg.Table.end(t.key)
	}
	if t.unrecorded {
		<-t.limiter.unrecorded
	}
	t.lock.releaseTurns()
	if t.permit || t.ahead {
		t.releasePermit()
	}
	t.inflight.remove(&t.message)
	t.slots.Done()
	return handed
}

// releasePermit gives up the permit of a task that needs none now.
func (t *task) releasePermit() {
	switch {
	case t.permit:
		t.permit = false
		if next := t.limiter.release(); next != nil {
			next.pool.do(next.work)
		}
	case t.ahead:
		t.limiter.withdraw(t)
	}
}

// recovered is deferred in every function that takes steps of a task. A panic in the worker's
// own code fails that slot only, on whichever goroutine it happens.
func (t *task) recovered() {
	if p := recover(); p != nil {
		t.fail(p)
	}
}

// maxFailures bounds the panics around one delivery.
const maxFailures = 3

// fail handles a panic in the worker's own code. If the task has a claim without a result, it
// records a failed attempt. Else it postpones the slot, or drops the message past the horizon.
// After more than maxFailures panics it closes the task without an answer to the broker. Then a
// claimed slot stays in the table, since its handler may run.
func (t *task) fail(p any) {
	err := panicked(p)
	t.cfg.Logger.Error("handling a slot panicked", "slot", t.d.Slot.ID(), "subject", t.msg.Subject(), "error", err)
	t.passOn()
	t.lock.releaseTurns()
	switch t.failures++; {
	case t.state >= settling:
		t.close()
		return
	case t.failures > maxFailures:
		t.cfg.Logger.Error("the failure of a slot cannot be recorded", "slot", t.d.Slot.ID(), "error", err)
		t.owed = t.owed && t.fence == 0
		t.close()
		return
	}
	defer t.recovered()
	switch {
	case t.fence == 0 && core.PastHorizon(t.d, t.cfg.Now(), t.horizon()):
		t.end(drop(err.Error()))
	case t.fence == 0 || t.ending: // no handler runs; the next delivery goes on from the record
		t.postpone(err)
	default:
		result := core.Result{Err: err, Backoff: delay(t.policies().Retry, t.rec.Attempt)}
		t.complete(t.cfg.Life, core.Complete(t.rec, t.fence, t.cfg.Now(), t.horizon(), result))
	}
	t.advance(false)
}

// horizon is the age past which slots end. There is none while the clock is not
// believed.
func (c *Consumer) horizon() time.Duration {
	if c.cfg.Plausible() != nil {
		return math.MaxInt64
	}
	return c.cfg.Horizon
}

// verdict is the answer to the broker about a message.
type verdict struct {
	kind   verdictKind
	delay  time.Duration
	reason string
}

type verdictKind uint8

const (
	verdictSilence verdictKind = iota
	verdictAck
	verdictLater
	verdictDrop
)

var (
	// ack: the slot has its outcome, in a durable record.
	ack = verdict{kind: verdictAck}

	// silence: another worker may own the slot. An ack does not fence: it would take the
	// message from under that worker.
	silence = verdict{kind: verdictSilence}
)

// later: the broker shall deliver the message again, no sooner than d from now.
func later(d time.Duration) verdict { return verdict{kind: verdictLater, delay: d} }

// drop: the broker shall never deliver the message again, although there is no outcome.
func drop(reason string) verdict { return verdict{kind: verdictDrop, reason: reason} }

// settle is the only step that answers the broker about a message (invariant 6). It does not
// wait until the server has the answer. If the answer is lost, the message is delivered again,
// and the record says what became of the slot.
func (t *task) settle() progress {
	t.state = leaving
	var err error
	switch v := t.verdict; {
	case v.kind == verdictAck:
		err = t.msg.Ack()
	case v.kind == verdictLater && v.delay > 0:
		err = t.msg.NakWithDelay(v.delay)
	case v.kind == verdictLater:
		err = t.msg.Nak()
	case v.kind == verdictDrop:
		err = t.msg.TermWithReason(v.reason)
		t.cfg.Logger.Error("message dropped: it is no slot", "subject", t.msg.Subject(), "reason", v.reason)
	}
	if err != nil {
		t.cfg.Logger.Debug("answer not sent; the message comes again", "subject", t.msg.Subject(), "error", err)
	}
	if t.final && t.lock.entered {
		return onward
	}
	return t.close()
}

// tooMany is the delay of a message that is given back because no permit was free.
const tooMany = 100 * time.Millisecond

// read parses the message into t.d.
func (t *task) read() error {
	meta, err := t.msg.Metadata()
	if err != nil {
		return err // no message of a queue at all
	}
	t.d = core.Delivery{Queue: t.cfg.Queue, Payload: t.msg.Data(), Published: meta.Timestamp, Count: int(min(meta.NumDelivered, math.MaxInt32))}
	if t.d.Message, err = core.ParseMessage(t.msg.Headers()); err != nil {
		return err
	}
	return t.d.CheckSubject(t.msg.Subject())
}

// arrive enters the slot in the table.
func (t *task) arrive(mayBlock bool) progress {
	if !t.permit && !t.ahead || isClosed(t.stopping) {
		return t.end(later(tooMany)) // not at once: the last request may still be open
	}
	if t.unread != nil {
		if !mayBlock {
			return blocks
		}
		return t.refuseUnreadable()
	}
	t.key = t.d.Slot.Key()
	var owner string
	if owner, t.owed = t.cfg.Table.take(t.key, t.cfg.Node.Name()); t.owed {
		t.state = looking
		return onward
	}
	if owner == t.cfg.Node.Name() {
		return t.end(silence) // this node has another delivery of it in flight
	}
	return t.end(later(t.cfg.Lease / 4)) // a handler of an older incarnation has not returned
}

// refuseUnreadable ends a delivery whose message this program cannot read. A newer program may
// be able to, so the message is given back until it is past the horizon. A message that
// contradicts itself is no slot for any program, and is dropped at once.
func (t *task) refuseUnreadable() progress {
	if errors.Is(t.unread, core.ErrContradicts) || t.cfg.Now().Sub(t.d.Published) > t.horizon() {
		return t.end(drop(t.unread.Error()))
	}
	if t.d.Count <= 2 { // it may come back for a day
		t.cfg.Logger.Warn("message cannot be read; left for a newer node", "subject", t.msg.Subject(), "error", t.unread, "list_all", "cronce doctor")
	}
	return t.end(later(min(time.Second<<min(t.d.Count, 10), time.Minute)))
}

func isClosed(event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	default:
		return false
	}
}
