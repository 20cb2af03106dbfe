package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// learnWhole reads the record of the slot that the shard is a part of, at the
// ledger's leader.
func (t *task) learnWhole(ctx context.Context) error {
	whole := t.d.Slot.Whole()
	rec, revision, err := t.cfg.Ledger.Read(ctx, whole)
	t.view.Whole = core.Whole{Known: true, Revision: revision}
	switch {
	case errors.Is(err, job.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("read slot %s: %w", whole, err)
	}
	t.view.Whole.Record = &rec
	return nil
}

// writeWhole writes the record of the whole slot. If another worker was faster, that worker has
// written the same record or ended the slot. Then the next decision reads the record again.
func (t *task) writeWhole(ctx context.Context, rec job.Record) error {
	t.view.Whole.Known = false
	rec.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
	revision, err := t.cfg.Ledger.Write(ctx, rec, t.view.Whole.Revision)
	switch {
	case errors.Is(err, job.ErrConflict):
		return nil
	case err != nil:
		return fmt.Errorf("write slot %s: %w", rec.Slot, err)
	}
	t.view.Whole = core.Whole{Known: true, Record: &rec, Revision: revision}
	if rec.State.Final() {
		t.final = true
		t.emit(rec, revision)
	}
	return nil
}

// conclude writes the outcome of a whole slot if all its parts have their outcomes. It returns
// the outcome and its revision, or nil if there is none yet. It reads the parts at the leader
// and stops at the first without an outcome. So the worker that writes the last part's outcome
// finds all of them.
func (t *task) conclude(ctx context.Context, whole job.Slot) (end *job.Record, revision uint64, err error) {
	for range maxLooks {
		rec, revision, err := t.cfg.Ledger.Read(ctx, whole)
		switch {
		case errors.Is(err, job.ErrNotFound):
			return nil, 0, nil
		case err != nil:
			return nil, 0, fmt.Errorf("read slot %s: %w", whole, err)
		case rec.State.Final():
			return &rec, revision, nil
		case rec.Shards == 0:
			return nil, 0, nil
		}
		parts := make([]job.Record, rec.Shards)
		for i := range parts {
			parts[i], _, err = t.cfg.Ledger.Read(ctx, whole.Part(i+1, rec.Shards))
			switch {
			case errors.Is(err, job.ErrNotFound):
				return nil, 0, nil
			case err != nil:
				return nil, 0, fmt.Errorf("read slot %s: %w", whole.Part(i+1, rec.Shards), err)
			case !parts[i].State.Final():
				return nil, 0, nil
			}
		}
		end := core.Conclude(rec, parts, t.cfg.Node.Name(), t.cfg.Now())
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

// concludeWhole concludes the whole slot after this shard of it got its outcome. If that fails,
// it is done when the message is delivered again, or by the sweep.
func (t *task) concludeWhole() progress {
	end, revision, err := t.conclude(t.cfg.Node.Context(), t.d.Slot.Whole())
	if err != nil {
		return t.postpone(err)
	}
	if t.final = end != nil; !t.final {
		return t.end(ack)
	}
	t.rec, t.answer.revision, t.state = *end, revision, following
	return onward
}
