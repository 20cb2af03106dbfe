package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

const (
	// In one round, a task reads what it needs to know about the slot, and then decides, possibly
	// several times. If another worker changes the record meanwhile, the task begins another
	// round. maxRounds bounds the rounds of one delivery, maxDecisions the decisions in one
	// round.
	maxRounds    = 8
	maxDecisions = 10

	// If the worker leaves a slot to other workers, it logs the reason only in the slot's first
	// maxReasons deliveries.
	maxReasons = 3
)

// nextRound begins another round.
func (t *task) nextRound() flow {
	t.rounds++
	t.state = loading
	return onward
}

// load reads what a decision needs: the record from the ledger's leader, the job's definition,
// and whether this process has a handler for the job.
func (t *task) load(mayBlock bool) flow {
	if t.rounds >= maxRounds {
		return t.respondWith(later(time.Second))
	}
	entry := t.cfg.Registry.Known(t.d.Slot.Job, t.d.JobRevision)
	// At its first delivery, a slot most likely has no record. So the slot is claimed without a
	// read: if there is a record, the write is refused. A slot whose message was published again
	// may have a record.
	first := t.rounds == 0 && t.d.Count <= 1 && t.d.Offer == 0
	if !mayBlock && (entry == nil || !first || len(entry.Job.After) > 0) {
		return wouldBlock
	}
	ctx := t.cfg.Node.Context()
	t.view.Self, t.view.Horizon = t.cfg.Node.Name(), t.cfg.Horizon
	if !first {
		rec, revision, err := t.readSlot(ctx, t.d.Slot)
		if err != nil {
			return t.postpone(err)
		}
		// What was found out for an earlier revision of the record may be wrong now. The slot may
		// have ended, left its lock, and been reopened.
		t.view.Record, t.view.Revision, t.view.OwnerDead = rec, revision, false
		t.view.Disowned = t.retaken && rec != nil && rec.Node == t.view.Self
		t.view.Admission = core.Admission{}
	}
	t.view.Entry, t.lookupErr, t.view.Handles = entry, nil, t.cfg.Handler(t.d.Slot.Job) != nil
	if entry == nil {
		t.lookUp(ctx)
	}
	if e := t.view.Entry; e != nil && t.view.Handles && len(e.Job.After) > 0 {
		if err := t.readResults(ctx, e.Job.After); err != nil {
			return t.postpone(err)
		}
	}
	t.decided, t.state = 0, deciding
	return onward
}

// readResults reads the results of the slots that this slot follows, one of each job in after.
// Those slots have ended. If this slot was triggered directly, it follows none, and no records
// are found.
func (t *task) readResults(ctx context.Context, after []string) error {
	t.results = map[string]json.RawMessage{}
	for _, name := range after {
		before := t.d.Slot.Whole()
		before.Job = name
		rec, _, err := t.readSlot(ctx, before)
		switch {
		case exchange.IsUnreadable(err):
			t.cfg.Logger.Warn("the result of an earlier job cannot be read; the slot runs without it", "slot", t.d.Slot.ID(), "before", before.ID(), "error", err)
		case err != nil:
			return err
		case rec != nil && rec.State == job.Succeeded && len(rec.Result) > 0:
			t.results[name] = rec.Result
		}
	}
	return nil
}

// readSlot reads a slot's record and its revision from the ledger's leader. The record is nil if
// there is none.
func (t *task) readSlot(ctx context.Context, s job.Slot) (*job.Record, uint64, error) {
	rec, revision, err := t.cfg.Ledger.Read(ctx, s)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return nil, revision, nil
	case err != nil:
		return nil, 0, fmt.Errorf("read slot %s: %w", s, err)
	}
	return &rec, revision, nil
}

// lookUp asks the registry's leader for the definition.
func (t *task) lookUp(ctx context.Context) {
	entry, err := t.cfg.Registry.Lookup(ctx, t.d.Slot.Job, t.d.JobRevision)
	switch {
	case errors.Is(err, job.ErrNotFound):
	case err != nil:
		t.lookupErr = fmt.Errorf("look up job %s: %w", t.d.Slot.Job, err)
	default:
		t.view.Entry = &entry
	}
}

// decide asks core.Decide what to do, and sets the next state. If it may not block, it handles
// only the actions Enter and Start. For the other actions it may log, and logging may block.
func (t *task) decide(mayBlock bool) flow {
	if t.decided++; t.decided > maxDecisions {
		return t.nextRound()
	}
	t.view.Now, t.view.Error, t.view.Implausible = t.cfg.Now(), t.cfg.ClockError(), t.cfg.Plausible() != nil
	if t.lookupErr != nil && core.NeedsDefinition(t.d, t.view) {
		return t.postpone(t.lookupErr)
	}
	t.decision = core.Decide(t.d, t.view)
	starts := t.decision.Action == core.Enter || t.decision.Action == core.Start
	switch {
	case starts && (core.IsClosed(t.stopping) && !t.goesOn() || !core.IsClosed(t.cfg.Ready())):
		return t.respondWith(later(0)) // without a delay: newer messages would overtake a delayed one
	case !starts && !mayBlock:
		return wouldBlock
	}
	switch t.decision.Action {
	case core.Prove:
		t.state = proving
	case core.ReadWhole:
		t.state = readingWhole
	case core.WriteWhole:
		t.state = writingWhole
	case core.Enter:
		t.state = entering
	case core.Stand:
		t.state = standing
	case core.Start, core.End:
		t.state = preparing
	case core.ConcludeWhole:
		t.state = concludingWhole
	case core.Later:
		if t.decision.Reason != "" && t.d.Count <= maxReasons {
			t.cfg.Logger.Warn("slot left to other workers", "slot", t.d.Slot.ID(), "publisher", t.d.Node, "reason", t.decision.Reason)
		}
		return t.respondWith(later(t.decision.Delay))
	case core.Ack:
		return t.acknowledge()
	}
	return onward
}

// goesOn reports whether a task of a consumer that is ending may start its slot. It may if the
// consumer is only retired and the slot is in its job's lock. If the slot returned to the queue, which
// may have no other worker, it would keep its place in the lock, and the job's later slots would be
// skipped.
func (t *task) goesOn() bool {
	return t.decision.Action == core.Start && t.lock.entered && core.IsClosed(t.retired) && t.handlersCtx.Err() == nil
}

// acknowledge goes on with a slot that already has its outcome. The worker that wrote it may not
// have published what follows, so this task publishes it too. A message for a whole slot without
// a record is acked because the job's plan splits the slot by now: its shards have their own
// messages.
func (t *task) acknowledge() flow {
	switch {
	case t.d.Slot.Shards > 0:
		t.state = concludingWhole
	case t.view.Record != nil:
		t.rec, t.answer.revision, t.state = *t.view.Record, t.view.Revision, following
	default:
		return t.respondWith(ack)
	}
	return onward
}

// prove finds out whether the owner of the slot's record is dead, or is alive and does not hold
// the claim. The task releases its permit first, so that another slot can use it meanwhile.
func (t *task) prove() flow {
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
		return t.respondWith(later(wait + wait/100)) // a little longer, since a message that returns too early has to wait once more
	}
	t.cfg.Logger.Warn("live node does not hold its claim", "slot", t.d.Slot.ID(), "owner", owner, "revision", t.view.Revision, "error", err)
	return onward
}

// readWhole reads the record of the whole slot that the shard belongs to.
func (t *task) readWhole() flow {
	rec, revision, err := t.readSlot(t.cfg.Node.Context(), t.d.Slot.Whole())
	if err != nil {
		return t.postpone(err)
	}
	t.view.Whole, t.state = core.Whole{Known: true, Record: rec, Revision: revision}, deciding
	return onward
}

// policies returns the job's definition with its defaults. If the job was deleted after the
// slot's first claim, the slot goes on. Then the settings that its record does not hold
// (timeout, backoff) have their default values.
func (t *task) policies() job.Job {
	if t.view.Entry == nil {
		return job.Job{}.WithDefaults()
	}
	return t.view.Entry.Job.WithDefaults()
}

// postpone ends a delivery after an error of the broker. The message returns to the queue with a
// delay, and its next delivery goes on from what is stored.
func (t *task) postpone(err error) flow {
	if t.cfg.Node.Context().Err() != nil {
		return t.respondWith(silence)
	}
	t.cfg.Logger.Warn("slot postponed", "slot", t.d.Slot.ID(), "error", err)
	return t.respondWith(later(min(time.Second<<min(t.d.Count, 5), 30*time.Second)))
}
