package croncetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Advance moves the clock on by d, from one due time to the next. At each it waits until every slot
// of a job that a live replica handles has its outcome, including retries, jobs that come after
// others, and jobs that messages start. It fails the test if that takes longer than Patience, and says what it waited for.
func (f *Fleet) Advance(d time.Duration) {
	f.t.Helper()
	f.AdvanceTo(f.Now().Add(d))
}

// AdvanceTo is Advance to a time. If the time is past, it only waits, as Settle does.
func (f *Fleet) AdvanceTo(until time.Time) {
	f.t.Helper()
	for len(f.alive()) > 0 {
		next := f.next()
		if next.IsZero() || next.After(until) {
			break
		}
		f.clock.set(next)
		f.settle(next)
	}
	f.clock.set(until)
	f.Settle()
}

// Settle waits, like Advance, until all slots that are due now have their outcome.
func (f *Fleet) Settle() {
	f.t.Helper()
	if len(f.alive()) > 0 {
		f.settle(f.Now())
	}
}

// settle waits for the slots that are due after f.settled and up to now.
func (f *Fleet) settle(now time.Time) {
	f.t.Helper()
	f.wait("all slots that are due at "+now.Format(time.RFC3339), func(ctx context.Context) (string, error) {
		return f.pending(ctx, now)
	})
	f.settled = now
}

// next returns when the next slot of a job that is handled is due. Zero: never.
func (f *Fleet) next() (next time.Time) {
	f.t.Helper()
	for _, e := range f.entries() {
		plan, err := job.ParseSchedule(e.Job.Name, e.Job.Plan())
		if err != nil || e.Paused {
			continue
		}
		after := plans.Later(f.settled, e.Since())
		at := plan.Next(after.Add(-plan.Delay()))
		if due := at.Add(plan.Delay()); !at.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}

// entries returns the jobs of the registry that running replicas handle.
func (f *Fleet) entries() []plans.Entry {
	f.t.Helper()
	ctx, cancel := f.patient()
	defer cancel()
	alive := f.alive()
	f.join(ctx, alive)
	all, err := f.store.Jobs().List(ctx)
	f.must(err)
	return slices.DeleteFunc(all, func(e plans.Entry) bool {
		return !slices.ContainsFunc(alive, func(r *replicaProcess) bool {
			return r.handles(e.Job.Name)
		})
	})
}

// join waits until the registry has the jobs that the test has just added to a Scheduler.
func (f *Fleet) join(ctx context.Context, replicas []*replicaProcess) {
	f.t.Helper()
	for _, r := range replicas {
		if err := r.inside.Joined(ctx); err != nil && !errors.Is(err, job.ErrStopping) {
			f.t.Fatalf("croncetest: %v", err)
		}
	}
}

// pending names a slot that is due up to now and has no outcome yet, or a stream with a message that
// has not become a run. "": there is none.
func (f *Fleet) pending(ctx context.Context, now time.Time) (string, error) {
	for _, e := range f.entries() {
		if what, err := f.untaken(ctx, e); what != "" || err != nil {
			return what, err
		}
		for _, at := range planned(e, f.settled, now) {
			what, err := f.unfinished(ctx, job.NewSlot(e.Job.Name, at))
			if what != "" || err != nil {
				return what, err
			}
		}
	}
	slots, err := f.js.Stream(ctx, f.store.SlotStream())
	if err != nil {
		return "", err
	}
	if slots.CachedInfo().State.Msgs == 0 {
		return "", nil
	}
	return f.waiting(ctx)
}

// untaken says that a message which should start the job has not become a run. "": none waits. A
// message is acked when its run is stored.
func (f *Fleet) untaken(ctx context.Context, e plans.Entry) (string, error) {
	if e.Job.On.IsZero() || e.Paused {
		return "", nil
	}
	source, err := f.js.Stream(ctx, e.Job.On.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	began := false
	for _, name := range layout.OnConsumers(f.store.Namespace, e.Job.Name) {
		c, err := source.Consumer(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
			continue
		case err != nil:
			return "", err
		case c.CachedInfo().NumPending > 0 || c.CachedInfo().NumAckPending > 0:
			return fmt.Sprintf("a message of stream %s has not started job %s", e.Job.On.Stream, e.Job.Name), nil
		}
		began = true
	}
	if !began {
		return fmt.Sprintf("no producer takes the messages of stream %s that start job %s", e.Job.On.Stream, e.Job.Name), nil
	}
	return "", nil
}

// waiting names a slot that waits in the stream or runs. "": there is none. It leaves out slots
// that wait for a handler that no replica has.
func (f *Fleet) waiting(ctx context.Context) (string, error) {
	alive := f.alive()
	for w, err := range f.store.Slots().Waiting(ctx, stream.WaitingFilter{}) {
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(alive, func(r *replicaProcess) bool { return r.handles(w.Slot.Job) }) {
			return w.Slot.ID() + " waits or runs", nil
		}
		r, _, err := f.store.Ledger().Read(ctx, w.Slot)
		if err != nil && !errors.Is(err, job.ErrNotFound) {
			return "", err
		}
		if r.State == job.Running {
			return w.Slot.ID() + " runs", nil
		}
	}
	return "", nil
}

// unfinished says why a slot has no outcome yet. "": it has one.
func (f *Fleet) unfinished(ctx context.Context, s job.Slot) (string, error) {
	r, _, err := f.store.Ledger().Read(ctx, s)
	switch {
	case errors.Is(err, job.ErrNotFound):
		if _, err := kv.RangeOf(ctx, f.store.Ledger(), s); !errors.Is(err, job.ErrNotFound) {
			return "", err
		}
		return s.ID() + " has not been claimed", nil
	case err != nil:
		return "", err
	case !r.State.Final():
		return fmt.Sprintf("%s is %s on %s, attempt %d", s.ID(), r.State, r.Node, r.Attempt), nil
	}
	return "", nil
}

// planned returns the instants of a job's slots that are to be published after one time, up to and
// including another, by the definitions that the job had then. A slot is published when it falls due,
// or, if that was in a pause, when the pause ends.
func planned(e plans.Entry, after, until time.Time) (all []time.Time) {
	for _, p := range e.Plans() {
		s, err := job.ParseSchedule(e.Job.Name, p.Plan)
		if err != nil {
			continue
		}
		for _, part := range e.Stretches(p, s) {
			from, to := part.After, plans.UpTo(until.Add(-s.Delay()), part.Until)
			if !part.Since.After(after) {
				from = plans.Later(after.Add(-s.Delay()), from)
			}
			all = slices.AppendSeq(all, s.Between(from, to))
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

// wait polls until missing returns "".
func (f *Fleet) wait(what string, missing func(context.Context) (string, error)) {
	f.t.Helper()
	ctx, cancel := f.patient()
	defer cancel()
	last := "the server has not answered"
	for {
		now, err := missing(ctx)
		switch {
		case err == nil && now == "":
			return
		case err == nil:
			last = now
		case ctx.Err() == nil:
			f.t.Fatalf("croncetest: waiting for %s: %v", what, err)
		}
		select {
		case <-ctx.Done():
			f.t.Fatalf("croncetest: waited %v for %s: %s", f.cfg.patience, what, last)
		case <-time.After(time.Millisecond):
		}
	}
}
