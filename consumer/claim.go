package consumer

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// mayClaimAhead reports whether the slot may be claimed before the task has a permit. Three
// kinds of slots may not:
//   - A slot of one attempt. If the worker died before the handler starts, the attempt would
//     be spent.
//   - A slot with a start deadline. It could start too late.
//   - A slot that waited for its lock. The slots behind it would wait longer too.
func (t *task) mayClaimAhead(claim job.Record) bool {
	e := t.view.Entry
	return t.ahead && claim.MaxAttempts > 1 && !t.lock.waited && (e == nil || e.Job.Deadline == 0)
}

// claim prepares the record of a decision: a claim, or an outcome without a run.
func (t *task) claim() progress {
	step := StepComplete
	if t.decision.Action == core.Start {
		step = StepClaim
		if !t.permit && !t.mayClaimAhead(t.decision.Record) {
			t.state = deciding // if the task has to wait for a permit, it decides again: time has passed
			if !t.limiter.acquire(t) {
				return handed
			}
		}
	}
	t.prepare(t.cfg.Node.Context(), t.decision.Record, t.view.Revision, step)
	return onward
}

// prepare sets the record that the step write sends, the revision at which to write it, and the
// context that bounds the write. All repetitions of the write have the same nonce.
func (t *task) prepare(ctx context.Context, rec job.Record, at uint64, step string) {
	t.rec, t.at, t.ctx, t.state = rec, at, ctx, writing
	t.rec.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
	_, t.endTrace = t.trace(ctx, step, t.rec)
}

// write sends the record. The answer takes the task on. If the result of an attempt cannot be
// written any more, because t.ctx has ended, it gives up.
func (t *task) write(mayBlock bool) progress {
	switch {
	case !t.ending:
		t.state = claimed
	case t.ctx.Err() == nil:
		t.state = recorded
	case !mayBlock:
		return blocks
	default:
		return t.refused(context.Cause(t.ctx))
	}
	t.cfg.Ledger.Send(t.ctx, t.rec, t.at, func(revision uint64, err error) {
		t.answer = answer{revision, err}
		t.advance(false)
	})
	return handed
}

// goOn handles the answer to the write of a claim, or of an outcome without a run. If another
// worker has changed the record, the task looks at the slot again.
func (t *task) goOn(mayBlock bool) progress {
	err, claim, left := t.answer.err, t.decision.Action == core.Start, t.view.OwnerDead || t.view.Disowned
	if err == nil && claim {
		t.fence = t.answer.revision
	}
	if !mayBlock && (err != nil || !claim || left) {
		return blocks // what follows is logged, and logging may block
	}
	t.endTrace(err)
	switch {
	case err == nil && claim:
		if left {
			t.emitKind(job.EventTakeover, t.rec, t.fence, t.view.Record.Node)
		}
		if t.state = running; !t.permit && !t.limiter.acquire(t) {
			return handed
		}
		return onward
	case err == nil:
		t.emit(t.rec, t.answer.revision)
		return t.hasOutcome()
	case errors.Is(err, job.ErrUnknown) && t.ctx.Err() != nil:
		// The incarnation has ended. The write may still land, as a claim of a node that
		// will be proved dead.
		return t.end(silence)
	case errors.Is(err, job.ErrConflict), errors.Is(err, job.ErrUnknown): // the ledger says what became of it
		return t.lookAgain()
	}
	return t.postpone(err)
}

// hasOutcome sets the next state after this task has written an outcome.
func (t *task) hasOutcome() progress {
	if t.d.Slot.Shards > 0 {
		t.state = concluding
	} else {
		t.final, t.state = true, following
	}
	return onward
}
