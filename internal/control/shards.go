package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// partsAtOnce is how many parts of a slot are asked to end at once: so many that
// all end within about a second.
const partsAtOnce = 64

// cancelWhole ends all parts of a slot that is split, once: it is marked first, so
// that parts that nobody has seen yet end by themselves.
func (c *Control) cancelWhole(ctx context.Context, r job.Record, revision uint64, waiting func(Asked)) error {
	if r.Error == "" {
		_, err := c.store(ctx, core.MarkWhole(r, c.cause()), revision)
		if err != nil && !errors.Is(err, job.ErrConflict) {
			return fmt.Errorf("cancel slot %q: %w", r.Slot.ID(), err)
		}
	}
	group, parts := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	var one sync.Mutex
	for i := range r.Shards {
		group.Go(func() error {
			_, err := c.Cancel(parts, r.Slot.Part(i+1, r.Shards), func(a Asked) {
				one.Lock()
				defer one.Unlock()
				waiting(a)
			})
			var refused *SlotError // it has its outcome, or was not published yet
			if errors.As(err, &refused) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	final, err := c.conclude(ctx, r.Slot)
	switch {
	case errors.Is(err, job.ErrConflict): // somebody else has concluded it
		return nil
	case err != nil || final:
		return err
	}
	return pause(ctx, askAgain)
}

// conclude writes the outcome of a slot that is split, if all its parts have one,
// and reports whether it has it now.
func (c *Control) conclude(ctx context.Context, whole job.Slot) (final bool, err error) {
	r, revision, err := c.record(ctx, whole)
	if err != nil || r == nil || r.State.Final() {
		return r != nil && r.State.Final(), err
	}
	parts := make([]job.Record, r.Shards)
	for i := range parts {
		part, _, err := c.record(ctx, whole.Part(i+1, r.Shards))
		if err != nil || part == nil || !part.State.Final() {
			return false, err
		}
		parts[i] = *part
	}
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return false, err
	}
	end := core.Conclude(*r, parts, c.cfg.Who, now)
	won, err := c.store(ctx, end, revision)
	if err != nil {
		return false, err
	}
	c.tell(job.Event{
		Kind: job.EventKind(end.State), Time: now.UTC(), ID: whole.ID(), Job: whole.Job, Attempt: end.Attempt, Fence: won, Error: end.Error,
	})
	return true, nil
}

// reopenWhole gives the parts that did not succeed a new start. All their records are
// won before the first message is offered: a part that is done while others still
// have their old outcome would give that to the whole.
func (c *Control) reopenWhole(ctx context.Context, r job.Record, revision uint64) (Reopened, error) {
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return Reopened{}, err
	}
	done := Reopened{Record: r}
	if r.State == job.Succeeded {
		return done, &SlotError{r.Slot, r.State, c.closed(r.Slot, &r, false, now)}
	}
	if why := c.tooOld(r.Slot, r, now); why != "" {
		return done, &SlotError{r.Slot, r.State, why}
	}
	if err := c.openWhole(ctx, r.Slot); err != nil {
		return done, err
	}
	e, _, err := c.cfg.Jobs.Read(ctx, r.Slot.Job)
	if err != nil {
		return done, fmt.Errorf("the slot's job: %w", err)
	}
	done.Record = core.ReopenWhole(r)
	var parts []opened
	for i := range r.Shards {
		part := r.Slot.Part(i+1, r.Shards)
		again, err := c.openPart(ctx, part)
		var refused *SlotError // it has succeeded, or is under way
		switch {
		case err == nil:
			parts = append(parts, again)
			done.Left = max(done.Left, again.left())
		case errors.Is(err, job.ErrNotFound):
			// The slot ended before this part had begun.
			p := r
			p.Slot, p.Shards = part, 0
			parts = append(parts, opened{p, revision, e})
			done.Left = max(done.Left, e.Job.WithDefaults().Retry.Attempts)
		case !errors.As(err, &refused):
			// Somebody was faster, who may count on what was won so far.
			return done, errors.Join(err, c.offerAll(ctx, parts))
		case refused.State == job.Pending: // its message is still there, and will do
			done.Left = max(done.Left, e.Job.WithDefaults().Retry.Attempts)
		}
	}
	if err := c.offerAll(ctx, parts); err != nil {
		return done, err
	}
	if done.Left == 0 {
		return done, &SlotError{r.Slot, r.State, "none of its parts has ended without success"}
	}
	return done, nil
}

func (c *Control) offerAll(ctx context.Context, parts []opened) error {
	for _, p := range parts {
		if err := c.offer(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (c *Control) openPart(ctx context.Context, part job.Slot) (opened, error) {
	r, revision, err := c.record(ctx, part)
	if err != nil {
		return opened{}, err
	}
	return c.open(ctx, part, r, revision)
}

// openWhole takes the outcome off a slot that is split, before a part of it is
// given a new start: with it, the part would end at once. What has no outcome, or
// no record yet, is open.
func (c *Control) openWhole(ctx context.Context, whole job.Slot) error {
	r, revision, err := c.record(ctx, whole)
	if err != nil || r == nil || !r.State.Final() || r.State == job.Succeeded {
		return err
	}
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return err
	}
	if err := c.tellReopened(ctx, *r, now); err != nil {
		return err
	}
	if _, err := c.store(ctx, core.ReopenWhole(*r), revision); !errors.Is(err, job.ErrConflict) {
		return err
	}
	return c.slotConflict(ctx, whole)
}

// shards tells how the parts of a slot stand.
func (t *teller) shards(ctx context.Context) error {
	whole, n := t.story.Slot, t.record.Shards
	states := map[job.State]int{}
	for i := range n {
		part := whole.Part(i+1, n)
		r, _, err := t.Control.record(ctx, part)
		switch {
		case err != nil:
			return err
		case r == nil:
			states[job.Pending]++
			continue
		}
		states[r.State]++
		if r.State.Final() {
			t.step(r.Finished, StepKind(r.State), r.Node, "shard %s: %s%s", part.ID(), r.State, because(r.Error)).Attempt = r.Attempt
		}
	}
	var all []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		all = append(all, fmt.Sprintf("%d %s", states[state], state))
	}
	t.story.Why += fmt.Sprintf(" It is split into %d shards: %s. cronce slot explain %s tells of one.", n, strings.Join(all, ", "), whole.Part(1, n).ID())
	return nil
}
