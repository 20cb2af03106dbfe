package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// releaseClaim prepares the record that releases a claim before its handler has started. The
// attempt does not count.
func (t *task) releaseClaim() { t.complete(t.cfg.Node.Context(), core.Release(t.rec, t.cfg.Now())) }

// complete prepares the write of rec, the result of the attempt, at the revision of the claim.
// The write is repeated until ctx ends. The message is answered after that (invariant 6).
//
// With ctx = Config.Life, the write goes on after the lease: the broker refuses it if another
// worker has taken the slot over. See attempt.returned.
func (t *task) complete(ctx context.Context, rec job.Record) flow {
	t.ending, t.answer, t.failures = true, answer{}, 0
	t.prepare(ctx, rec, t.fence, StepComplete)
	return onward
}

// afterResult handles the answer to the write of an attempt's result. It repeats the write until
// the result is stored or t.ctx ends. A conflict means that another worker has taken the slot
// over, unless the ledger itself has lost the claim.
func (t *task) afterResult(mayBlock bool) flow {
	err := t.answer.err
	if !mayBlock && (err != nil || t.rec.State != job.Succeeded || t.cfg.Logger.Enabled(t.cfg.Life, slog.LevelInfo)) {
		return wouldBlock
	}
	if err == nil {
		t.endTrace(nil)
		if t.failures > 0 {
			t.cfg.Logger.Info("outcome recorded after failures", "slot", t.rec.Slot.ID(), "failures", t.failures)
		}
		t.emit(t.rec, t.answer.revision)
		t.reportFailure()
		if t.rec.State == job.Retrying {
			return t.respondWith(later(core.RetryWait(t.rec, t.cfg.Now())))
		}
		return t.afterOutcome()
	}
	if t.retry == nil {
		t.retry = newBackoff()
	}
	t.state = writing
	if errors.Is(err, job.ErrConflict) {
		stored, revision, readErr := t.readSlot(t.ctx, t.rec.Slot)
		switch {
		case readErr != nil:
			err = readErr
		case revision == t.at || !core.Outlasts(t.rec, stored):
			return t.claimLost(err)
		default:
			t.cfg.Logger.Warn("the ledger lost a claim, as after a purge or a restore; the worker still writes the outcome",
				"slot", t.rec.Slot.ID(), "fence", t.fence, "revision", revision)
			t.at = revision
			return onward
		}
	}
	// The error may be temporary, such as that of a full bucket. So the write is repeated until
	// t.ctx ends.
	if t.ctx.Err() == nil {
		if t.failures++; t.failures == 1 {
			t.cfg.Logger.Error("outcome cannot be recorded; trying again", "slot", t.rec.Slot.ID(), "error", err)
		}
	}
	select {
	case <-t.ctx.Done():
	case <-time.After(t.retry.NextBackOff()):
	}
	return onward
}

// claimLost ends the delivery without an answer to the broker. cause is job.ErrConflict if
// another worker owns the slot. If t.ctx ended before the result was stored, it is the cause of
// t.ctx.
func (t *task) claimLost(cause error) flow {
	t.respondWith(silence) // even if one of the next lines panics
	t.endTrace(cause)
	end := t.rec
	t.cfg.Logger.Warn("completion refused: claim lost", "slot", end.Slot.ID(), "attempt", end.Attempt, "state", end.State, "error", cause)
	end.Error = cause.Error()
	t.emitKind(job.EventRefused, end, t.fence, "")
	return t.respondWith(silence)
}

// mayClaimAhead reports whether the slot may be claimed before the task has a permit. Three
// kinds of slots may not:
//   - A slot of one attempt. If the worker died before the handler started, the attempt would
//     be spent.
//   - A slot with a start deadline. It could start too late.
//   - A slot that was called from its job's line. The slots behind it would wait longer too.
func (t *task) mayClaimAhead(claim job.Record) bool {
	e := t.view.Entry
	called := t.view.Record != nil && t.view.Record.State == job.Waiting
	return t.pending && claim.MaxAttempts > 1 && !called && (e == nil || e.Job.Deadline == 0)
}

// prepareDecision prepares the record of a decision: a claim, or an outcome without a run.
func (t *task) prepareDecision() flow {
	// The process may have been suspended since the message arrived.
	if !t.cfg.Node.Trusted() {
		return t.respondWith(silence)
	}
	step := StepComplete
	if t.decision.Action == core.Start {
		step = StepClaim
		if !t.permit && !t.mayClaimAhead(t.decision.Record) {
			t.state = deciding // the decision may be stale by the time the task gets a permit
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
	t.endTrace = func(error) {} // if the trace panics, the record is written without it: see fail
	_, t.endTrace = t.trace(ctx, step, t.rec)
}

// write sends the record. The callback that gets the answer goes on with the task. If t.ctx has
// ended, write does not send the result of an attempt any more, and ends the delivery as
// refused.
func (t *task) write(mayBlock bool) flow {
	switch {
	case !t.ending:
		t.state = decisionAnswered
	case t.ctx.Err() == nil:
		t.state = resultAnswered
	case !mayBlock:
		return wouldBlock
	default:
		return t.claimLost(context.Cause(t.ctx))
	}
	t.cfg.Ledger.Send(t.ctx, t.rec, t.at, func(revision uint64, err error) {
		t.answer = answer{revision, err}
		t.advance(false)
	})
	return handed
}

// afterDecision handles the answer to the write of a claim, or of an outcome without a run. If
// another worker has changed the record, the task begins another round.
func (t *task) afterDecision(mayBlock bool) flow {
	err, claim, takesOver := t.answer.err, t.decision.Action == core.Start, t.view.OwnerDead || t.view.Disowned
	if err == nil && claim {
		t.fence = t.answer.revision
	}
	if !mayBlock && (err != nil || !claim || takesOver) {
		return wouldBlock // what follows is logged, and logging may block
	}
	t.endTrace(err)
	switch {
	case err == nil && claim:
		if takesOver {
			t.emitKind(job.EventTakeover, t.rec, t.fence, t.view.Record.Node)
		}
		if t.state = running; !t.permit && !t.limiter.acquire(t) {
			return handed
		}
		return onward
	case err == nil:
		t.emit(t.rec, t.answer.revision)
		return t.afterOutcome()
	case errors.Is(err, job.ErrUnknown) && t.ctx.Err() != nil:
		// The incarnation has ended. The record may still be stored. If it is a claim, another
		// worker takes the slot over when this node is proved dead.
		return t.respondWith(silence)
	case errors.Is(err, job.ErrConflict), errors.Is(err, job.ErrUnknown): // the ledger says what became of it
		return t.nextRound()
	}
	return t.postpone(err)
}

// afterOutcome sets the next state after this task has written an outcome.
func (t *task) afterOutcome() flow {
	if t.d.Slot.Shards > 0 {
		t.state = concludingWhole
	} else {
		t.final, t.state = true, following
	}
	return onward
}

// writeWhole writes the record of the whole slot. If another worker was faster, that worker has
// written the same record or ended the slot. Then the next decision reads the record again.
func (t *task) writeWhole() flow {
	rec := t.decision.Record
	rec.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
	revision, err := t.cfg.Ledger.Write(t.cfg.Node.Context(), rec, t.view.Whole.Revision)
	t.view.Whole.Known, t.state = false, deciding
	switch {
	case errors.Is(err, job.ErrConflict):
		return onward
	case err != nil:
		return t.postpone(fmt.Errorf("write slot %s: %w", rec.Slot, err))
	}
	t.view.Whole = core.Whole{Known: true, Record: &rec, Revision: revision}
	if rec.State.Final() {
		t.final = true
		t.emit(rec, revision)
	}
	return onward
}

// conclude writes the outcome of a whole slot if all its shards have their outcomes. It returns
// the outcome and its revision, or nil if there is none yet. It reads the shards at the leader
// and stops at the first without an outcome. So the worker that writes the last shard's outcome
// finds all of them.
func (t *task) conclude(ctx context.Context, whole job.Slot) (end *job.Record, revision uint64, err error) {
	for range maxRounds {
		rec, revision, err := t.readSlot(ctx, whole)
		switch {
		case err != nil || rec == nil:
			return nil, 0, err
		case rec.State.Final():
			return rec, revision, nil
		case rec.Shards == 0:
			return nil, 0, nil
		}
		shards := make([]job.Record, rec.Shards)
		for i := range shards {
			shard, _, err := t.readSlot(ctx, whole.WithShard(i+1, rec.Shards))
			if err != nil || shard == nil || !shard.State.Final() {
				return nil, 0, err
			}
			shards[i] = *shard
		}
		end := core.Conclude(*rec, shards, t.cfg.Node.Name(), t.cfg.Now())
		end.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
		revision, err = t.cfg.Ledger.Write(ctx, end, revision)
		switch {
		case errors.Is(err, job.ErrConflict):
			continue
		case err != nil:
			return nil, 0, fmt.Errorf("write slot %s: %w", whole, err)
		}
		t.emit(end, revision)
		return &end, revision, nil
	}
	return nil, 0, nil
}

// concludeWhole writes the outcome of the whole slot if this shard was the last to get its
// outcome. If the write fails, the next delivery of the message repeats it, or the fleet's sweep
// does (internal/fleet/sweep).
func (t *task) concludeWhole() flow {
	end, revision, err := t.conclude(t.cfg.Node.Context(), t.d.Slot.Whole())
	if err != nil {
		return t.postpone(err)
	}
	if t.final = end != nil; !t.final {
		return t.respondWith(ack)
	}
	t.rec, t.answer.revision, t.state = *end, revision, following
	return onward
}
