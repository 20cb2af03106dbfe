package intake

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// follower takes the messages that start one job, by one definition: the messages of the current
// plan, and what is left of the earlier ones.
type follower struct {
	cfg   Config
	entry plans.Entry
	log   *slog.Logger

	plans   []plans.PastPlan
	done    map[time.Time]bool // the plans that are drained, by their From
	takers  map[string]bool    // the keys of the consumers that have a taker
	results chan result
	running sync.WaitGroup
	warned  map[string]bool // the errors that were logged
}

// result is how a taker ended.
type result struct {
	planConsumer
	drained bool
	err     error
}

func newFollower(cfg Config, e plans.Entry) *follower {
	return &follower{
		cfg: cfg, entry: e, log: cfg.Logger.With("job", e.Job.Name), plans: e.OnPlans(),
		done: map[time.Time]bool{}, takers: map[string]bool{}, results: make(chan result), warned: map[string]bool{},
	}
}

// errEdited means that the registry has another definition than this follower. The registry's
// watch will soon deliver it, and Intake then stops the follower.
var errEdited = errors.New("the definition was edited")

// run takes messages until ctx ends.
func (f *follower) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer f.running.Wait()
	defer cancel()
	for ctx.Err() == nil {
		settled, err := f.reconcileAll(ctx)
		f.logOnce(err)
		f.wait(ctx, settled && err == nil)
	}
}

// wait returns when the consumers must be listed again: at once if one is drained, and after a delay
// if something failed or is left to do.
func (f *follower) wait(ctx context.Context, settled bool) {
	var retry <-chan time.Time
	if !settled {
		retry = time.After(retryDelay)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry:
			return
		case r := <-f.results:
			delete(f.takers, key(r.consumer))
			if r.drained {
				f.done[r.plan.From] = true
				return
			}
			f.logOnce(r.err, "stream", r.consumer.Stream, "consumer", r.consumer.Name)
			if retry == nil {
				retry = time.After(retryDelay)
			}
		}
	}
}

// logOnce logs each error once. It ignores a removed consumer and an edited definition: the next
// reconcile finds the new state.
func (f *follower) logOnce(err error, about ...any) {
	for _, expected := range []error{errEdited, jetstream.ErrConsumerDeleted, jetstream.ErrConsumerNotFound} {
		if errors.Is(err, expected) {
			return
		}
	}
	if err != nil && !f.warned[err.Error()] {
		f.warned[err.Error()] = true
		f.log.Error("cannot take messages that start a job, will retry", append(about, "error", err)...)
	}
}

// key distinguishes a consumer from consumers of the same name that existed before or after it.
func key(c core.OnConsumer) string { return c.Stream + "/" + c.Name + "/" + c.Created.String() }

// reconcileAll repeats reconcile until nothing changes. It reports whether nothing is left to do.
func (f *follower) reconcileAll(ctx context.Context) (settled bool, err error) {
	for range 2*len(f.plans) + 2 { // each round begins or ends a plan
		changed, left, err := f.reconcile(ctx)
		if err != nil || !changed {
			return !left, err
		}
	}
	return false, nil
}

// reconcile lists the consumers and does what they require. changed is true if it created or
// removed one, and left if something must be done later.
func (f *follower) reconcile(ctx context.Context) (changed, left bool, err error) {
	found, err := f.find(ctx)
	a := arrange(f.plans, found, f.done, f.cfg.Now().Add(-f.cfg.Horizon))
	if err == nil {
		for _, p := range a.drained(f.plans) {
			f.done[p.From] = true
		}
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for _, c := range a.adopt {
		err, left = errors.Join(err, f.cfg.Broker.AdoptOn(asking, c.consumer, c.plan)), true
	}
	if a.begin != nil {
		failed := f.begin(asking, *a.begin, found)
		err, changed = errors.Join(err, failed), failed == nil
	}
	remove := a.remove
	for _, c := range a.take {
		switch {
		case !f.done[c.plan.From]:
			f.start(ctx, c)
		case a.isSpent(c, f.plans):
			remove = append(remove, c.consumer)
		default:
			left = true
		}
	}
	for _, c := range remove {
		failed := f.remove(asking, c)
		err, changed = errors.Join(err, failed), changed || failed == nil
	}
	return changed, left, err
}

// find returns the consumers on all streams of the plans. A stream that does not exist has none.
func (f *follower) find(ctx context.Context) (found []core.OnConsumer, err error) {
	var streams []string
	for _, p := range f.plans {
		if stream := p.Plan.On.Stream; !slices.Contains(streams, stream) {
			streams = append(streams, stream)
			asking, cancel := context.WithTimeout(ctx, askTime)
			consumers, failed := f.cfg.Broker.OnConsumers(asking, stream, f.entry.Job.Name)
			cancel()
			found = append(found, consumers...)
			if !errors.Is(failed, job.ErrNotFound) {
				err = errors.Join(err, failed)
			}
		}
	}
	return found, err
}

// begin creates the consumer of a plan. The consumer of a past plan begins no earlier than the
// horizon, because the slots of older messages would expire.
func (f *follower) begin(ctx context.Context, p plans.PastPlan, found []core.OnConsumer) error {
	since := p.From
	if oldest := f.cfg.Now().Add(-f.cfg.Horizon); !p.To.IsZero() && since.Before(oldest) {
		since = oldest
	}
	for _, name := range f.cfg.Names(f.entry.Job.Name) {
		if !slices.ContainsFunc(found, func(c core.OnConsumer) bool { return c.Stream == p.Plan.On.Stream && c.Name == name }) {
			err := f.cfg.Broker.BeginOn(ctx, f.entry.Job.Name, name, p, since)
			if err != nil && !p.To.IsZero() && !errors.Is(err, job.ErrUnknown) && ctx.Err() == nil {
				// The stream of the plan no longer exists, or cannot be read. The later plans
				// must begin all the same.
				f.log.Warn("cannot take messages of a plan that has ended", "on", p.Plan.On.String(), "error", err)
				f.done[p.From] = true
				return nil
			}
			return err
		}
	}
	return nil
}

// remove removes a consumer if the leader of the registry has no definition, or one that does not
// need the consumer. If the definition cannot be decoded, the consumer stays.
func (f *follower) remove(ctx context.Context, c core.OnConsumer) error {
	e, err := f.cfg.Read(ctx, f.entry.Job.Name)
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		return err
	}
	if err == nil && !isRemovable(e, c) {
		return errEdited
	}
	if err := f.cfg.Broker.RemoveOn(ctx, c); err != nil {
		return err
	}
	f.log.Info("removed the consumer of a plan that has ended", "stream", c.Stream, "subject", c.On.Subject, "consumer", c.Name)
	return nil
}

// start starts a taker for a consumer, unless the consumer has one.
func (f *follower) start(ctx context.Context, c planConsumer) {
	k := key(c.consumer)
	if f.takers[k] {
		return
	}
	f.takers[k] = true
	f.running.Go(func() {
		drained, err := newTaker(f, c).run(ctx)
		select {
		case f.results <- result{c, drained, err}:
		case <-ctx.Done():
		}
	})
}
