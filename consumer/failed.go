package consumer

import (
	"github.com/cronce-io/cronce/internal/core"
)

// A panic in the worker's own code around one slot is that slot's failure: each step of
// a slot's way runs under recovered, on whichever goroutine.

// do runs a step that may block, on a goroutine of the crew.
func (t *task) do(step func() verdict) {
	t.crew.do(func() {
		defer t.recovered()
		t.settle(step())
	})
}

// recovered is deferred around a step.
func (t *task) recovered() {
	if p := recover(); p != nil {
		t.failed(p)
	}
}

// failed ends a slot in whose handling the worker panicked. If even that panics, the
// message is left alone, and the slot stays in the table if a handler may have run: it
// must not start again as if it never had.
func (t *task) failed(p any) {
	err := panicked(p)
	t.cfg.Logger.Error("handling a slot panicked", "slot", t.d.Slot.ID(), "subject", t.msg.Subject(), "error", err)
	defer func() {
		if p := recover(); p != nil {
			t.cfg.Logger.Error("the failure of a slot cannot be recorded", "slot", t.d.Slot.ID(), "error", p)
			if !t.settled {
				t.settled = true
				t.over()
			}
		}
	}()
	t.settle(t.failure(err))
}

func (t *task) failure(err error) verdict {
	switch {
	case t.fence == 0 && core.PastHorizon(t.d, t.cfg.Now(), t.horizon()):
		return dropped(err.Error())
	case t.fence == 0 || t.ending: // nothing runs; what stands in the ledger says what is left to do
		return t.postponed(err)
	}
	result := core.Result{Err: err, Backoff: delay(t.policies().Retry, t.rec.Attempt)}
	return t.complete(t.cfg.Life, core.Complete(t.rec, t.fence, t.cfg.Now(), t.horizon(), result), t.fence)
}
