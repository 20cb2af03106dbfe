package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

const (
	// maxLooks bounds how often a task looks at a slot for which other workers contend, in one
	// delivery. maxDecisions bounds the decisions in one look.
	maxLooks     = 8
	maxDecisions = 10

	// maxReasons bounds the deliveries of a slot in which the reason for leaving it to other
	// workers is logged.
	maxReasons = 3
)

// lookAgain begins a further look.
func (t *task) lookAgain() progress {
	t.looks++
	t.state = looking
	return onward
}

// look finds out what a decision needs: the record at the ledger's leader, the job's
// definition and its handler.
func (t *task) look(mayBlock bool) progress {
	if t.looks >= maxLooks {
		return t.end(later(time.Second))
	}
	entry := t.cfg.Registry.Known(t.d.Slot.Job, t.d.JobRevision)
	// The first delivery of a slot most likely finds no record: the slot is claimed without
	// a read, and the write decides. A slot that is offered again has a record.
	unheard := t.looks == 0 && !t.lock.waited && t.d.Count <= 1 && t.d.Offer == 0
	if !mayBlock && (entry == nil || !unheard) {
		return blocks
	}
	ctx := t.cfg.Node.Context()
	t.view.Self, t.view.Horizon = t.cfg.Node.Name(), t.cfg.Horizon
	if !unheard {
		if err := t.readRecord(ctx); err != nil {
			return t.postpone(err)
		}
	}
	t.view.Entry, t.undefined, t.view.Handles = entry, nil, t.cfg.Handler(t.d.Slot.Job) != nil
	if entry == nil {
		t.lookUp(ctx)
	}
	t.decided, t.state = 0, deciding
	return onward
}

func (t *task) readRecord(ctx context.Context) error {
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

// lookUp asks the registry's leader for the definition.
func (t *task) lookUp(ctx context.Context) {
	entry, err := t.cfg.Registry.Lookup(ctx, t.d.Slot.Job, t.d.JobRevision)
	switch {
	case errors.Is(err, job.ErrNotFound):
	case err != nil:
		t.undefined = fmt.Errorf("look up job %s: %w", t.d.Slot.Job, err)
	default:
		t.view.Entry = &entry
	}
}

// decide asks core.Decide what to do, and sets the next state. If it may not block, it goes on
// only with a slot that is to be started or to enter its lock. All other ways may log.
func (t *task) decide(mayBlock bool) progress {
	if t.decided++; t.decided > maxDecisions {
		return t.lookAgain()
	}
	t.view.Now, t.view.Error, t.view.Doubted = t.cfg.Now(), t.cfg.ClockError(), t.cfg.Plausible() != nil
	if t.undefined != nil && core.NeedsDefinition(t.d, t.view) {
		return t.postpone(t.undefined)
	}
	t.decision = core.Decide(t.d, t.view)
	starts := t.decision.Action == core.Enter || t.decision.Action == core.Start
	switch {
	case starts && (isClosed(t.stopping) || !isClosed(t.cfg.Ready())):
		return t.end(later(0)) // at once: newer messages would overtake one that is delayed
	case !starts && !mayBlock:
		return blocks
	}
	switch t.decision.Action {
	case core.Prove:
		t.state = proving
	case core.LearnWhole, core.WriteWhole:
		t.state = dividing
	case core.Enter:
		t.state = entering
	case core.Wait:
		t.state = waiting
	case core.Start, core.End:
		t.state = claiming
	case core.Conclusion:
		t.state = concluding
	case core.Later:
		if t.decision.Reason != "" && t.d.Count <= maxReasons {
			t.cfg.Logger.Warn("slot left to other workers", "slot", t.d.Slot.ID(), "publisher", t.d.Node, "reason", t.decision.Reason)
		}
		return t.end(later(t.decision.Delay))
	case core.Ack:
		return t.acknowledge()
	}
	return onward
}

// acknowledge goes on with a slot whose outcome another worker has written. That worker may
// have crashed before it published what follows, so this one publishes it too.
func (t *task) acknowledge() progress {
	switch {
	case t.d.Slot.Shards > 0:
		t.state = concluding
	case t.view.Record != nil:
		t.rec, t.answer.revision, t.state = *t.view.Record, t.view.Revision, following
	default:
		return t.end(ack)
	}
	return onward
}

// prove finds out whether the owner of the slot's record has left the slot: either the owner is
// dead, or it is alive and does not hold the claim. The task gives up its permit first, so that
// another slot can use it meanwhile.
func (t *task) prove() progress {
	t.releasePermit()
	ctx, owner := t.cfg.Node.Context(), t.view.Record.Node
	dead, wait, err := t.cfg.Node.Dead(ctx, owner)
	if err != nil {
		return t.postpone(err)
	}
	t.state = deciding
	if t.view.OwnerDead = dead; dead {
		return onward
	}
	answer, err := t.cfg.Holds(ctx, owner, t.d.Slot, t.view.Revision)
	if t.view.Disowned = core.Disowned(t.d, t.view, answer, err); !t.view.Disowned {
		return t.end(later(wait + wait/100))
	}
	t.cfg.Logger.Warn("live node does not hold its claim", "slot", t.d.Slot.ID(), "owner", owner, "revision", t.view.Revision, "error", err)
	return onward
}

// divide reads or writes the record of the whole slot that the shard is a part of.
func (t *task) divide() progress {
	ctx, err := t.cfg.Node.Context(), error(nil)
	if t.decision.Action == core.WriteWhole {
		err = t.writeWhole(ctx, t.decision.Record)
	} else {
		err = t.learnWhole(ctx)
	}
	if err != nil {
		return t.postpone(err)
	}
	t.state = deciding
	return onward
}

// policies returns the job's definition with its defaults. If the job was deleted after the
// slot's first claim, the slot goes on, and what its record does not hold (timeout, backoff)
// has the defaults.
func (t *task) policies() job.Job {
	if t.view.Entry == nil {
		return job.Job{}.WithDefaults()
	}
	return t.view.Entry.Job.WithDefaults()
}
