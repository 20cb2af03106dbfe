package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// release prepares the record that gives up a claim before its handler has started. The attempt
// does not count.
func (t *task) release() { t.complete(t.cfg.Node.Context(), core.Release(t.rec, t.cfg.Now())) }

// complete prepares rec as the result of the attempt. It is written at the revision of the claim,
// and the write is repeated until ctx ends. The message is answered after that (invariant 6).
//
// If the handler returned before the lease of its node ended, or may outlive its node, ctx ends
// with the process. The claim is valid until another worker has proved the node dead and taken
// the slot over, and then the write at the claim's revision is refused. Else ctx ends with the
// node.
func (t *task) complete(ctx context.Context, rec job.Record) progress {
	t.ending = true
	t.prepare(ctx, rec, t.fence, StepComplete)
	return onward
}

// finish handles the answer to the write of an attempt's result. It repeats the write until it is
// stored. A conflict means that another worker has taken the slot over, unless the ledger itself
// has lost the claim.
func (t *task) finish(mayBlock bool) progress {
	err := t.answer.err
	if !mayBlock && (err != nil || t.rec.State != job.Succeeded || t.cfg.Logger.Enabled(t.cfg.Life, slog.LevelInfo)) {
		return blocks
	}
	if err == nil {
		t.endTrace(nil)
		t.emit(t.rec, t.answer.revision)
		if t.rec.State == job.Retrying {
			return t.end(later(core.RetryWait(t.rec, t.cfg.Now())))
		}
		return t.hasOutcome()
	}
	if t.retry == nil {
		t.retry = newBackoff()
	}
	t.state = writing
	if errors.Is(err, job.ErrConflict) {
		stands, outlasts, unread := t.outlasts()
		switch {
		case unread != nil:
			err = unread
		case !outlasts || stands == t.at:
			return t.refused(err)
		default:
			t.cfg.Logger.Warn("the ledger lost a claim, as after a purge or a restore; its outcome is written all the same",
				"slot", t.rec.Slot.ID(), "fence", t.fence, "revision", stands)
			t.at = stands
			return onward
		}
	}
	// ErrUnknown ends with the context. Anything else, a full bucket say, may pass.
	if t.ctx.Err() == nil {
		t.cfg.Logger.Error("outcome cannot be recorded; trying again", "slot", t.rec.Slot.ID(), "error", err)
	}
	select {
	case <-t.ctx.Done():
	case <-time.After(t.retry.NextBackOff()):
	}
	return onward
}

// outlasts reports whether the claim still counts although the ledger has lost it, and at which
// revision to write the result: see core.Outlasts.
func (t *task) outlasts() (revision uint64, outlasts bool, err error) {
	rec, revision, err := t.cfg.Ledger.Read(t.ctx, t.rec.Slot)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return revision, core.Outlasts(t.rec, nil), nil
	case err != nil:
		return 0, false, err
	}
	return revision, core.Outlasts(t.rec, &rec), nil
}

func (t *task) refused(why error) progress {
	t.endTrace(why)
	end := t.rec
	t.cfg.Logger.Warn("completion refused: claim lost to another worker", "slot", end.Slot.ID(), "attempt", end.Attempt, "state", end.State, "error", why)
	end.Error = why.Error()
	t.emitKind(job.EventRefused, end, t.fence, "")
	return t.end(silence)
}
