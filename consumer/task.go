package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// task is one delivered slot that this process has entered in its table of
// obligations, from there to its verdict.
type task struct {
	*Consumer
	d   job.Delivery
	msg jetstream.Msg

	// place is the one that its handler takes; placed: it has been.
	place  *place
	placed bool

	// view is what is known of the slot at this turn.
	view job.View

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

// settle ends the obligation with its verdict.
func (t *task) settle(v verdict) {
	t.Consumer.settle(t.msg, v)
	if t.final && t.entered {
		t.leave()
	}
	t.cfg.Table.end(t.d.Slot.Key())
}

// sayTimes is in how many deliveries of a slot it is said that it is left, and why.
const sayTimes = 3

// maxTurns bounds how often a slot that others fight over is looked at in one
// delivery.
const maxTurns = 8

// decide follows the claim rules until they end in a verdict. Each turn looks at
// what is known, asks job.Decide, and tries the write it names; a conflict means
// that something was not as it seemed, so it looks again.
func (t *task) decide() verdict {
	ctx := t.cfg.Node.Context()
	t.view = job.View{Self: t.cfg.Node.Name(), Horizon: t.cfg.Horizon}
	for turn := 0; turn < maxTurns; turn++ {
		// A first delivery most likely has no record: its claim is tried
		// without a read, and the write decides. What is offered again has one.
		if turn > 0 || t.parked || t.d.Count > 1 || t.d.Offer > 0 {
			if err := t.look(ctx); err != nil {
				return t.postponed(err)
			}
		}
		t.view.Now = t.cfg.Now()
		if err := t.define(ctx); err != nil && job.NeedsDefinition(t.d, t.view) {
			return t.postponed(err)
		}
		v, decided := t.turn(ctx)
		switch {
		case decided:
			return v
		case t.view.Place.Kind == job.PlaceWaits || t.view.Place.Kind == job.PlaceCrowded:
			again, instead := t.park(ctx)
			if !again {
				return t.givenBack(instead)
			}
			t.parked, turn, t.view.Place = true, -1, job.Place{}
		}
	}
	return after(time.Second)
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
	step := job.Decide(t.d, t.view)
	if step.Action == job.Prove {
		dead, wait, err := t.cfg.Node.Dead(ctx, t.view.Record.Node)
		switch {
		case err != nil:
			return t.postponed(err), true
		case !dead:
			return after(wait + wait/100), true
		}
		t.view.OwnerDead = true
		step = job.Decide(t.d, t.view)
	}
	for range maxAsked {
		var err error
		switch step.Action {
		case job.LearnWhole:
			err = t.learnWhole(ctx)
		case job.WriteWhole:
			err = t.writeWhole(ctx, step.Record)
		case job.Enter:
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
		step = job.Decide(t.d, t.view)
	}
	return verdict{}, false
}

// maxAsked bounds what is found out about a slot's surroundings in one turn.
const maxAsked = 8

// take does what a step says that needs no more to be known.
func (t *task) take(ctx context.Context, step job.Step) (verdict, bool) {
	switch step.Action {
	case job.Ack:
		// A crash may have kept others from what follows.
		if t.d.Slot.Shards > 0 {
			return t.concludeWhole(), true
		}
		if t.view.Record != nil {
			return t.concluded(*t.view.Record, t.view.Revision), true
		}
		return done(), true
	case job.Conclusion:
		return t.concludeWhole(), true
	case job.Later:
		if step.Reason != "" && t.d.Count <= sayTimes {
			t.cfg.Logger.Warn("a slot is left to others", "slot", t.d.Slot.ID(), "publisher", t.d.Node, "reason", step.Reason)
		}
		return after(step.Delay), true
	case job.Wait:
		return verdict{}, false
	case job.Start:
		if v, withheld := t.withheld(); withheld {
			return v, true
		}
	}
	return t.act(ctx, step)
}

// withheld reports that no slot is to be started now, and what becomes of one that
// was asked for before.
func (t *task) withheld() (verdict, bool) {
	if t.isStopping() {
		return after(0), true
	}
	return after(shortest), !isClosed(t.cfg.Ready())
}

// look reads the slot's record at the ledger's leader.
func (t *task) look(ctx context.Context) error {
	rec, revision, err := t.cfg.Ledger.Read(ctx, t.d.Slot)
	t.view.Record, t.view.Revision, t.view.OwnerDead = nil, revision, false
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

// act writes the record of a step and goes on from there. It reports false when
// the write was lost to somebody else.
func (t *task) act(ctx context.Context, step job.Step) (verdict, bool) {
	rec := step.Record
	if step.Action == job.Start && (rec.MaxAttempts == 1 || t.parked) && !t.placed {
		// A claim that waits for its place when its worker dies has spent an attempt
		// without a start; a slot of one attempt has no other. One whose turn has come
		// in its job's lock goes to another worker if all places are taken here, since
		// those behind it wait for it; they do not all run beside the others.
		if t.placed = t.place.take(t.ended.Done()); !t.placed {
			return after(tooMany), true
		}
	}
	rec.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
	what := StepComplete
	if step.Action == job.Start {
		what = StepClaim
	}
	_, ended := t.trace(ctx, what, rec)
	revision, err := t.cfg.Ledger.Write(ctx, rec, t.view.Revision)
	ended(err)
	switch {
	case errors.Is(err, job.ErrConflict):
		return verdict{}, false
	case errors.Is(err, job.ErrUnknown) && ctx.Err() != nil:
		// The incarnation has ended over it. The write may yet land, as a claim
		// of a node that will be proved dead.
		return silent(), true
	case errors.Is(err, job.ErrUnknown):
		return verdict{}, false // what became of it, the ledger tells
	case err != nil:
		return t.postponed(err), true
	case step.Action == job.End:
		t.emit(rec, revision)
		return t.finished(rec, revision), true
	}
	if t.view.OwnerDead {
		t.emitKind(job.EventTakeover, rec, revision, t.view.Record.Node)
	}
	return t.attempt(rec, revision), true
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
