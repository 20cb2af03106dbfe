package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// task is one delivered message, from its receipt to its verdict.
//
// One goroutine at a time has it. Who hands a write over has given the task away
// (pending): to the answer, which may be quicker than its return.
type task struct {
	*Consumer
	d       core.Delivery
	msg     jetstream.Msg
	holding holding

	// owed says that its slot is in the table of obligations, under key.
	owed bool
	key  string

	// unread is why the message cannot be read.
	unread error

	// placed says that it has a place of the limiter, ahead that it counts among those
	// that will need one, unrecorded that its handler has returned and its outcome is
	// not stored yet. The limiter writes the first two.
	placed, ahead, unrecorded bool

	// fence is the revision of its claim, once that is won. ending says that the end of
	// its attempt was handed over, settled that the message was settled.
	fence           uint64
	ending, settled bool

	// next is the slot that got this one's place when the handler had returned.
	next *task

	// view is what is known of the slot at this turn, of turns.
	view  core.View
	turns int

	// rec is the record that was written last, or is on its way.
	rec job.Record

	// undefined says that the job's definition could not be had.
	undefined bool

	// entered says that the job's lock has the slot, as far as is known here, and
	// since when, and final that its outcome was written here: then it leaves.
	entered, final bool
	since          time.Time

	// skips says that its job has one place, and leaves out who comes meanwhile.
	skips bool

	// parked says that it has waited for its turn, outfought that others changed the
	// lock each time that it wanted to.
	parked, outfought bool
}

// settle ends the message with its verdict, if this is one, and all that is owed.
func (t *task) settle(v verdict) {
	if v.kind == open || t.settled {
		return
	}
	t.settled = true
	defer t.over()
	t.Consumer.settle(t.msg, v)
	if t.final && t.entered {
		t.leave()
	}
	if t.owed {
		t.cfg.Table.end(t.key)
	}
}

// over gives back what the task has.
func (t *task) over() {
	if t.unrecorded {
		<-t.limiter.unrecorded
	}
	t.release()
	t.held.remove(&t.holding)
	t.slots.Done()
}

// release gives up the place of a slot that needs none now.
func (t *task) release() {
	switch {
	case t.placed:
		t.placed = false
		if next := t.limiter.release(); next != nil {
			t.crew.run(next)
		}
	case t.ahead:
		t.limiter.giveUpWaiting(t)
	}
}

// sayTimes is in how many deliveries of a slot it is said that it is left, and why.
const sayTimes = 3

// maxTurns bounds how often a slot that others fight over is looked at in one
// delivery.
const maxTurns = 8

// begin is the first turn of decide where nothing in it can block: what most slots
// need, which are delivered for the first time, is at hand, and their claim is handed
// over by whoever delivers them. It reports false, and has done nothing, when the
// slot needs a goroutine of its own.
func (t *task) begin(now time.Time) bool {
	entry := t.cfg.Registry.Known(t.d.Slot.Job, t.d.JobRevision)
	if entry == nil || !t.unheard() || t.isStopping() {
		return false
	}
	t.view = core.View{Self: t.cfg.Node.Name(), Horizon: t.cfg.Horizon, Entry: entry, Handles: t.cfg.Handler(t.d.Slot.Job) != nil}
	t.readClock(now)
	step := core.Decide(t.d, t.view)
	switch _, withheld := t.withheld(); {
	case withheld:
		return false
	case step.Action == core.Enter:
		return t.enterAtOnce(t.cfg.Node.Context())
	case step.Action != core.Start || !t.mayClaim(step.Record) || !t.owe(new(string)):
		return false
	}
	t.write(t.cfg.Node.Context(), step.Action, step.Record)
	return true
}

// claimAtOnce is the next turn of a slot that has got its place in its job's lock, where
// nothing in that can block. It reports false, and has done nothing, when something may.
func (t *task) claimAtOnce(ctx context.Context) bool {
	t.readClock(t.cfg.Now())
	step := core.Decide(t.d, t.view)
	if _, withheld := t.withheld(); withheld || step.Action != core.Start || !t.mayClaim(step.Record) {
		return false
	}
	t.write(ctx, step.Action, step.Record)
	return true
}

// readClock notes what is known of the broker's clock, which shows now.
func (t *task) readClock(now time.Time) {
	t.view.Now, t.view.Error, t.view.Doubted = now, t.cfg.ClockError(), t.cfg.Plausible() != nil
}

// unheard reports whether the slot most likely has no record, as in a first delivery:
// its claim is tried without a read, and the write decides. What is offered again has
// one.
func (t *task) unheard() bool {
	return t.turns == 0 && !t.parked && t.d.Count <= 1 && t.d.Offer == 0
}

// decide follows the claim rules until they end in a verdict, or a write is on its
// way that does. Each turn looks at what is known, asks core.Decide, and tries the
// write it names; a conflict means that something was not as it seemed, so it looks
// again.
func (t *task) decide() verdict {
	ctx := t.cfg.Node.Context()
	t.view.Self, t.view.Horizon = t.cfg.Node.Name(), t.cfg.Horizon
	for t.turns < maxTurns {
		if !t.unheard() {
			if err := t.look(ctx); err != nil {
				return t.postponed(err)
			}
		}
		t.readClock(t.cfg.Now())
		if err := t.define(ctx); err != nil && core.NeedsDefinition(t.d, t.view) {
			return t.postponed(err)
		}
		if v, decided := t.turn(ctx); decided {
			return v
		}
		if v, left := t.again(ctx); left {
			return v
		}
	}
	return after(time.Second)
}

// again comes before the next turn: it waits for that in the job's lock, if the slot
// has to. It reports true, with the verdict, when there will be none.
func (t *task) again(ctx context.Context) (verdict, bool) {
	t.turns++
	if t.view.Place.Kind == core.PlaceWaits || t.view.Place.Kind == core.PlaceCrowded {
		again, instead := t.park(ctx)
		if !again {
			return t.givenBack(instead), true
		}
		t.parked, t.turns, t.view.Place = true, 0, core.Place{}
	}
	return verdict{}, false
}

// givenBack is the verdict on a slot that is not kept in hand any longer.
func (t *task) givenBack(delay time.Duration) verdict {
	if t.cfg.Node.Context().Err() != nil {
		return silent()
	}
	return after(delay)
}

// turn asks what to do, and does it. It reports false when the slot has to be
// looked at again, at once or, if its place is job.PlaceWaits, at its turn.
func (t *task) turn(ctx context.Context) (verdict, bool) {
	step := core.Decide(t.d, t.view)
	if step.Action == core.Prove {
		if v, left := t.prove(ctx); left {
			return v, true
		}
		step = core.Decide(t.d, t.view)
	}
	for range maxAsked {
		var err error
		switch step.Action {
		case core.LearnWhole:
			err = t.learnWhole(ctx)
		case core.WriteWhole:
			err = t.writeWhole(ctx, step.Record)
		case core.Enter:
			if v, withheld := t.withheld(); withheld {
				return v, true
			}
			err = t.enter(ctx)
		default:
			return t.take(ctx, step)
		}
		if err != nil {
			return t.postponed(err), true
		}
		step = core.Decide(t.d, t.view)
	}
	return verdict{}, false
}

// prove finds out whether the owner of the slot's record has left it: it is dead, or
// lives and does not hold the claim. It reports true, with the verdict, if not. The place
// is for others meanwhile.
func (t *task) prove(ctx context.Context) (verdict, bool) {
	t.release()
	owner := t.view.Record.Node
	dead, wait, err := t.cfg.Node.Dead(ctx, owner)
	if err != nil {
		return t.postponed(err), true
	}
	if t.view.OwnerDead = dead; dead {
		return verdict{}, false
	}
	answer, err := t.cfg.Holds(ctx, owner, t.d.Slot, t.view.Revision)
	t.view.Disowned = core.Disowned(t.d, t.view, answer, err)
	if t.view.Disowned {
		t.cfg.Logger.Warn("a live node does not hold a slot that it claimed", "slot", t.d.Slot.ID(), "owner", owner, "revision", t.view.Revision, "error", err)
		return verdict{}, false
	}
	return after(wait + wait/100), true
}

// maxAsked bounds what is found out about a slot's surroundings in one turn.
const maxAsked = 8

// take does what a step says that needs no more to be known.
func (t *task) take(ctx context.Context, step core.Step) (verdict, bool) {
	switch step.Action {
	case core.Ack:
		// A crash may have kept others from what follows.
		if t.d.Slot.Shards > 0 {
			return t.concludeWhole(), true
		}
		if t.view.Record != nil {
			return t.concluded(*t.view.Record, t.view.Revision), true
		}
		return done(), true
	case core.Conclusion:
		return t.concludeWhole(), true
	case core.Later:
		if step.Reason != "" && t.d.Count <= sayTimes {
			t.cfg.Logger.Warn("a slot is left to others", "slot", t.d.Slot.ID(), "publisher", t.d.Node, "reason", step.Reason)
		}
		return after(step.Delay), true
	case core.Wait:
		return verdict{}, false
	case core.Start:
		if v, withheld := t.withheld(); withheld {
			return v, true
		}
	}
	return t.act(ctx, step), true
}

// withheld reports that no slot is to be started now, and what becomes of one that
// was asked for before.
func (t *task) withheld() (verdict, bool) {
	if t.isStopping() {
		return after(0), true
	}
	// At once: a message that is given back with a delay would be passed by newer ones.
	return after(0), !isClosed(t.cfg.Ready())
}

// look reads the slot's record at the ledger's leader.
func (t *task) look(ctx context.Context) error {
	rec, revision, err := t.cfg.Ledger.Read(ctx, t.d.Slot)
	t.view.Record, t.view.Revision, t.view.OwnerDead, t.view.Disowned = nil, revision, false, false
	switch {
	case errors.Is(err, job.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("read slot %s: %w", t.d.Slot, err)
	}
	t.view.Record = &rec
	return nil
}

// define finds the job's definition and handler.
func (t *task) define(ctx context.Context) error {
	t.view.Entry, t.undefined = nil, false
	t.view.Handles = t.cfg.Handler(t.d.Slot.Job) != nil
	if t.view.Entry = t.cfg.Registry.Known(t.d.Slot.Job, t.d.JobRevision); t.view.Entry != nil {
		return nil
	}
	entry, err := t.cfg.Registry.Lookup(ctx, t.d.Slot.Job, t.d.JobRevision)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return nil
	case err != nil:
		t.undefined = true
		return fmt.Errorf("look up job %s: %w", t.d.Slot.Job, err)
	}
	t.view.Entry = &entry
	return nil
}

// act has the record of a step written, which goes on from there.
func (t *task) act(ctx context.Context, step core.Step) verdict {
	if step.Action == core.Start && !t.mayClaim(step.Record) && !t.limiter.wait(t) {
		return after(tooMany)
	}
	t.write(ctx, step.Action, step.Record)
	return pending()
}

// left reports whether the slot is taken over from a worker that has left it.
func (t *task) left() bool { return t.view.OwnerDead || t.view.Disowned }

// mayClaim reports whether the slot may be claimed now: it has a place, or may be claimed
// ahead of one. A slot of one attempt is not claimed ahead, since it would be spent if the
// worker died while the slot waits, nor one of a job with a deadline, since it could start
// too late. One whose turn has come in its job's lock goes to another worker if no place
// is free here: the slots behind it wait for it.
func (t *task) mayClaim(claim job.Record) bool {
	e := t.view.Entry
	return t.placed || t.ahead && claim.MaxAttempts > 1 && !t.parked && (e == nil || e.Job.Deadline == 0)
}

// write hands over the record of a step, and with it the task.
func (t *task) write(ctx context.Context, action core.Action, rec job.Record) {
	t.rec = rec
	t.rec.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
	what := StepComplete
	if action == core.Start {
		what = StepClaim
	}
	_, ended := t.trace(ctx, what, t.rec)
	t.cfg.Ledger.Send(ctx, t.rec, t.view.Revision, func(revision uint64, err error) {
		defer t.recovered()
		if err == nil && action == core.Start && t.cfg.Trace == nil && !t.left() {
			if t.fence = revision; t.placed || t.limiter.place(t) {
				t.crew.run(t)
			}
			return
		}
		t.do(func() verdict {
			ended(err)
			return t.written(ctx, action, revision, err)
		})
	})
}

// written goes on with what was answered to the write of a step. One that was lost to
// somebody else has the slot looked at again.
func (t *task) written(ctx context.Context, action core.Action, revision uint64, err error) verdict {
	switch {
	case err == nil && action == core.End:
		t.emit(t.rec, revision)
		return t.finished(t.rec, revision)
	case err == nil:
		if t.left() {
			t.emitKind(job.EventTakeover, t.rec, revision, t.view.Record.Node)
		}
		if t.fence = revision; t.placed || t.limiter.place(t) {
			t.run()
		}
		return pending()
	case errors.Is(err, job.ErrUnknown) && ctx.Err() != nil:
		// The incarnation has ended over it. The write may yet land, as a claim
		// of a node that will be proved dead.
		return silent()
	case errors.Is(err, job.ErrConflict), errors.Is(err, job.ErrUnknown): // what became of it, the ledger tells
		if v, left := t.again(ctx); left {
			return v
		}
		return t.decide()
	default:
		return t.postponed(err)
	}
}

// finished is the verdict on a slot whose outcome has just been written.
func (t *task) finished(rec job.Record, revision uint64) verdict {
	if t.d.Slot.Shards > 0 {
		return t.concludeWhole()
	}
	t.final = true
	return t.concluded(rec, revision)
}

// policies are the job's. A slot whose job was deleted after its first claim goes
// on, with the defaults for what its record does not keep (timeout, backoff).
func (t *task) policies() job.Job {
	if t.view.Entry == nil {
		return job.Job{}.WithDefaults()
	}
	return t.view.Entry.Job.WithDefaults()
}

// postponed is the verdict on a slot about which nothing could be found out, or
// whose write the broker refused: nothing was started, and it is wanted again.
func (t *task) postponed(err error) verdict {
	if t.cfg.Node.Context().Err() != nil {
		return silent()
	}
	t.cfg.Logger.Warn("slot put off", "slot", t.d.Slot.ID(), "error", err)
	return after(min(time.Second<<min(t.d.Count, 5), 30*time.Second))
}
