package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// lockPart is what a task knows of its job's lock.
type lockPart struct {
	// entered: the slot holds a place, as far as this task knows.
	entered bool

	// err is why the last request to the lock failed.
	err error
}

// enter asks the job's lock for a place. The answer takes the task's next step.
func (t *task) enter(mayBlock bool) flow {
	slot := t.d.Slot.Whole()
	if err := t.lock.err; err != nil {
		if !mayBlock {
			return wouldBlock
		}
		return t.postpone(err)
	}
	entrant := core.NewEntrant(t.d, t.view)
	t.gates.ask(slot.Job, &lockRequest{enter: &entrant, mayHold: t.mayHold(), answered: func(admission core.Admission, err error) {
		defer t.recovered()
		if t.lock.err = err; err == nil {
			t.lock.entered = admission.Kind == core.AdmissionGranted
			t.view.Admission, t.state = admission, deciding
		}
		t.advance(false)
	}})
	return handed
}

// mayHold reports whether the slot may hold a place already, or stand in the line.
func (t *task) mayHold() bool {
	return t.d.Count > 1 || t.d.Offer > 0 || t.view.Record != nil || t.view.Whole.Record != nil
}

// stand puts the slot into its job's line: it writes the slot's record, in the state Waiting, and then the
// entry, and looks at the lock once more. Then the message is acked: the worker that frees a place calls
// the slot with a new message. A slot that stands in the line takes nothing in this process.
func (t *task) stand() flow {
	ctx, waiting, revision := t.cfg.Node.Context(), t.decision.Record, t.view.Revision
	if t.d.Slot.Shards > 0 {
		revision = t.view.Whole.Revision
	}
	t.limiter.stand(t)
	if !t.decision.Stored {
		waiting.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
		var err error
		revision, err = t.cfg.Ledger.Write(ctx, waiting, revision)
		switch {
		case errors.Is(err, job.ErrConflict):
			return t.nextRound()
		case err != nil:
			return t.postpone(fmt.Errorf("write slot %s: %w", waiting.Slot, err))
		}
	}
	// From here on the slot may be called, and its new message may come to this process.
	t.leaveTable()
	sequence, err := t.cfg.Lines.Put(ctx, core.NewEntry(core.NewEntrant(t.d, t.view)), revision)
	if err != nil {
		return t.postpone(err)
	}
	if err := t.askAndWait(ctx, &lockRequest{stood: sequence, stands: calledSlot{waiting, revision}}); err != nil {
		return t.postpone(err)
	}
	if t.cfg.Observer != nil {
		t.cfg.Observer.Waits(t.cfg.Queue)
	}
	if displaced := t.view.Admission.Displaces; displaced != (job.Slot{}) && !t.displaceUntilEnded(ctx, displaced) {
		return t.respondWith(later(0)) // another worker goes on
	}
	return t.respondWith(ack)
}

// askAndWait hands in a request to the job's lock, and waits until it is carried out.
func (t *task) askAndWait(ctx context.Context, r *lockRequest) error {
	answered := make(chan error, 1)
	r.answered = func(_ core.Admission, err error) { answered <- err }
	t.gates.ask(t.d.Slot.Job, r)
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leaves reports whether the slot, which has its outcome, may hold a place: this task has entered the slot,
// or an earlier delivery of a message may have.
func (t *task) leaves() bool {
	return t.lock.entered || t.mayHold() && (t.view.Entry == nil || t.view.Entry.Job.Guarded())
}

// leave takes the slot, which has its outcome, out of its job's lock. If the line has slots that may run
// in its place, the same write calls them. The message is acked after that, so if the worker dies before,
// the worker that gets the message takes the slot out.
func (t *task) leave() flow {
	found := !t.lock.entered || !t.final || t.d.Slot.Shards > 0
	t.gates.ask(t.d.Slot.Job, &lockRequest{leave: t.d.Slot.Whole(), found: found, answered: func(_ core.Admission, err error) {
		defer t.recovered()
		if err != nil {
			t.response = silence
			t.cfg.Logger.Warn("slot not taken out of its job's lock; the next delivery of its message does that", "slot", t.d.Slot.ID(), "error", err)
		}
		t.state = responding
		t.advance(false)
	}})
	return handed
}

// displaceEvery is how often the holder of a place is asked to end, until it has ended.
const displaceEvery = 250 * time.Millisecond

// displaceUntilEnded ends the holder of the lock that this slot is to replace. The request to end may be
// lost, so it is repeated until the holder has left, or a newer slot replaces this one. Meanwhile the
// message is not acked: if the worker dies, another one goes on. It returns false if the worker stops first.
func (t *task) displaceUntilEnded(ctx context.Context, holder job.Slot) bool {
	own := core.NewEntrant(t.d, t.view).At
	for {
		l, _, err := t.cfg.Locks.Read(ctx, holder.Job)
		if err == nil && (!l.Holds(holder) || l.Newest.After(own)) {
			return true
		}
		if err == nil {
			t.displace(ctx, holder)
		}
		select {
		case <-ctx.Done():
			return false
		case <-t.stopping:
			return false
		case <-time.After(displaceEvery):
		}
	}
}

// displace ends the holder of the lock, with all its shards, because this slot is to replace it.
func (t *task) displace(ctx context.Context, holder job.Slot) {
	rec, revision, err := t.cfg.Ledger.Read(ctx, holder)
	if err != nil {
		return
	}
	if rec.Shards == 0 {
		t.displaceOne(ctx, rec, revision)
		return
	}
	if rec.Error == "" && !rec.State.Final() {
		marked := core.MarkWhole(rec, core.ReplacedBy(t.d.Slot.Whole()))
		marked.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
		_, _ = t.cfg.Ledger.Write(ctx, marked, revision)
	}
	for i := range rec.Shards {
		if shard, revision, err := t.cfg.Ledger.Read(ctx, holder.WithShard(i+1, rec.Shards)); err == nil {
			t.displaceOne(ctx, shard, revision)
		}
	}
	_, _, _ = t.conclude(ctx, holder) // the worker with the holder's messages publishes what follows
}

// displaceOne ends one slot or shard. If the handler runs, displaceOne asks its owner to end it.
// The request may be lost, so each call repeats it. If the slot waits for its next attempt, it
// has no owner, and displaceOne writes its outcome, and publishes its message for the worker that
// takes it out of the lock.
func (t *task) displaceOne(ctx context.Context, rec job.Record, revision uint64) {
	newer := t.d.Slot.Whole()
	switch rec.State {
	case job.Running:
		t.cfg.Cancel(ctx, rec.Node, core.CancelRequest{V: codec.Version, ID: rec.Slot.ID(), Fence: revision, Replaced: true, By: newer.ID()})
	case job.Retrying, job.Waiting:
		d := core.Delivery{Message: core.Message{Slot: rec.Slot}}
		end := core.Cancel(d, core.View{Now: t.cfg.Now(), Self: t.cfg.Node.Name(), Record: &rec}, core.ReplacedBy(newer))
		end.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
		revision, err := t.cfg.Ledger.Write(ctx, end, revision)
		if err != nil {
			return
		}
		t.emit(end, revision)
		t.gates.publishCalls(ctx, []calledSlot{{end, revision}}, t.view.Entry)
	}
}
