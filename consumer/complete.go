package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// giveBack releases a claim that was won when the worker's time was over: its
// attempt never began and does not count.
func (t *task) giveBack(fence uint64) verdict {
	return t.complete(t.cfg.Node.Context(), core.Release(t.rec, t.cfg.Now()), fence)
}

// complete hands over the end of an attempt, to be written at the revision of its
// claim. The message is answered only after that (invariant 6).
//
// If the handler returned before its node's lease ended, or was to finish whatever
// becomes of it, ctx is the process's: the write is repeated until it is answered. The
// claim stands until another worker has proved the node dead and taken the slot over,
// and the revision says whether one has. Else ctx is the node's.
func (t *task) complete(ctx context.Context, end job.Record, fence uint64) verdict {
	t.rec, t.ending = end, true
	t.rec.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
	_, ended := t.trace(ctx, StepComplete, t.rec)
	if ctx.Err() != nil {
		ended(context.Cause(ctx))
		return t.refused(fence, context.Cause(ctx))
	}
	t.cfg.Ledger.Send(ctx, t.rec, fence, func(revision uint64, err error) {
		defer t.recovered()
		if err == nil && t.isBrief() && (!t.entered || t.leaveIn()) {
			t.emit(t.rec, revision)
			t.settle(done())
			return
		}
		t.do(func() verdict { return t.completed(ctx, fence, ended, revision, err) })
	})
	return pending()
}

// isBrief reports whether nothing that is left to do when the outcome is stored can
// block, but for leaving its job's lock, so that whoever is told of that does it: nothing
// follows from it, and nobody takes notes.
func (t *task) isBrief() bool {
	return t.rec.State == job.Succeeded && t.rec.Slot.Shards == 0 && t.cfg.Trace == nil &&
		!t.cfg.Logger.Enabled(t.cfg.Life, slog.LevelInfo) && len(t.cfg.Registry.After(t.rec.Slot.Job)) == 0
}

// completed goes on with what was answered to the end of an attempt, and writes it
// until it is stored. A conflict means that the claim was lost, and the attempt's end is
// refused, unless the ledger itself has lost the claim.
func (t *task) completed(ctx context.Context, fence uint64, ended func(error), revision uint64, err error) verdict {
	var retry *backoff.ExponentialBackOff
	at := fence
	for err != nil {
		if errors.Is(err, job.ErrConflict) {
			stands, outlasts, unread := t.outlasts(ctx)
			switch {
			case unread != nil:
				err = unread
			case !outlasts || stands == at:
				ended(err)
				return t.refused(fence, err)
			default:
				t.cfg.Logger.Warn("the ledger has lost a claim, as after a purge or a restore; its outcome is written all the same",
					"slot", t.rec.Slot.ID(), "fence", fence, "revision", stands)
				at = stands
				revision, err = t.cfg.Ledger.Write(ctx, t.rec, at)
				continue
			}
		}
		// Unknown ends with the node's context. Anything else, a full bucket say,
		// may pass: a completion that cannot be written does not ack.
		if ctx.Err() == nil {
			t.cfg.Logger.Error("outcome cannot be recorded; trying again", "slot", t.rec.Slot.ID(), "error", err)
		}
		if retry == nil {
			retry = newBackoff()
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.NextBackOff()):
		}
		if ctx.Err() != nil {
			ended(context.Cause(ctx))
			return t.refused(fence, context.Cause(ctx))
		}
		revision, err = t.cfg.Ledger.Write(ctx, t.rec, at)
	}
	ended(nil)
	t.emit(t.rec, revision)
	if t.rec.State == job.Retrying {
		return after(core.RetryWait(t.rec, t.cfg.Now()))
	}
	return t.finished(t.rec, revision)
}

// outlasts reports whether the claim still counts although the ledger has it no more, and
// at which revision its outcome is to be written: see job.Record.Outlasts.
func (t *task) outlasts(ctx context.Context) (revision uint64, outlasts bool, err error) {
	rec, revision, err := t.cfg.Ledger.Read(ctx, t.rec.Slot)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return revision, core.Outlasts(t.rec, nil), nil
	case err != nil:
		return 0, false, err
	}
	return revision, core.Outlasts(t.rec, &rec), nil
}

func (t *task) refused(fence uint64, why error) verdict {
	end := t.rec
	t.cfg.Logger.Warn("completion refused: the claim was lost", "slot", end.Slot.ID(), "attempt", end.Attempt, "state", end.State, "error", why)
	end.Error = why.Error()
	t.emitKind(job.EventRefused, end, fence, "")
	return silent()
}
