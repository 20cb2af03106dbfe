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

// jobIntake takes the messages that start one job, by one definition: the messages of the current
// plan, and what is left of the earlier ones.
type jobIntake struct {
	cfg   Config
	entry plans.Entry
	log   *slog.Logger

	plans   []plans.PastPlan
	done    map[time.Time]bool // whether a plan is drained, by its From, as far as this is known
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

func newJobIntake(cfg Config, e plans.Entry) *jobIntake {
	return &jobIntake{
		cfg: cfg, entry: e, log: cfg.Logger.With("job", e.Job.Name), plans: e.OnPlans(),
		done: map[time.Time]bool{}, takers: map[string]bool{}, results: make(chan result), warned: map[string]bool{},
	}
}

// errEdited means that the registry has another definition than this jobIntake. The registry's
// watch will soon deliver it, and Intake then stops the jobIntake.
var errEdited = errors.New("the definition was edited")

// run takes messages until ctx ends.
func (j *jobIntake) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer j.running.Wait()
	defer cancel()
	for ctx.Err() == nil {
		settled, err := j.reconcileAll(ctx)
		j.logOnce(err)
		j.wait(ctx, settled && err == nil)
	}
}

// wait returns when the consumers must be listed again: at once if one is drained, and after a delay
// if something failed or is left to do.
func (j *jobIntake) wait(ctx context.Context, settled bool) {
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
		case r := <-j.results:
			delete(j.takers, key(r.consumer))
			if r.drained {
				j.done[r.plan.From] = true
				return
			}
			j.logOnce(r.err, "stream", r.consumer.Stream, "consumer", r.consumer.Name)
			if retry == nil {
				retry = time.After(retryDelay)
			}
		}
	}
}

// logOnce logs each error once. It ignores a removed consumer and an edited definition: the next
// reconcile finds the new state.
func (j *jobIntake) logOnce(err error, about ...any) {
	for _, expected := range []error{errEdited, jetstream.ErrConsumerDeleted, jetstream.ErrConsumerNotFound} {
		if errors.Is(err, expected) {
			return
		}
	}
	if err != nil && !j.warned[err.Error()] {
		j.warned[err.Error()] = true
		j.log.Error("cannot take messages that start a job, will retry", append(about, "error", err)...)
	}
}

// key distinguishes a consumer from consumers of the same name that existed before or after it.
func key(c core.OnConsumer) string { return c.Stream + "/" + c.Name + "/" + c.Created.String() }

// reconcileAll repeats reconcile until nothing changes. It reports whether nothing is left to do.
func (j *jobIntake) reconcileAll(ctx context.Context) (settled bool, err error) {
	for range 2*len(j.plans) + 2 { // each round begins or ends a plan
		changed, left, err := j.reconcile(ctx)
		if err != nil || !changed {
			return !left, err
		}
	}
	return false, nil
}

// reconcile lists the consumers and does what they require. changed is true if it created or
// removed one, and left if something must be done later.
func (j *jobIntake) reconcile(ctx context.Context) (changed, left bool, err error) {
	found, err := j.find(ctx)
	if err == nil && len(found) == 0 && len(j.done) == 0 && isOver(j.plans) {
		err = j.judge(ctx)
	}
	a := arrange(j.plans, found, j.done, j.cfg.Now().Add(-j.cfg.Horizon))
	if err == nil {
		for _, p := range a.drained(j.plans) {
			j.done[p.From] = true
		}
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for _, c := range a.adopt {
		err, left = errors.Join(err, j.cfg.Broker.AdoptOn(asking, c.consumer, c.plan)), true
	}
	if a.begin != nil {
		failed := j.begin(asking, *a.begin, found)
		err, changed = errors.Join(err, failed), failed == nil
	}
	remove := a.remove
	for _, c := range a.take {
		switch {
		case !j.done[c.plan.From]:
			j.start(ctx, c)
		case a.isSpent(c):
			remove = append(remove, c.consumer)
		default:
			left = true
		}
	}
	for _, c := range remove {
		failed := j.remove(asking, c)
		err, changed = errors.Join(err, failed), changed || failed == nil
	}
	return changed, left, err
}

// find returns the consumers on all streams of the plans. A stream that does not exist has none.
func (j *jobIntake) find(ctx context.Context) (found []core.OnConsumer, err error) {
	var streams []string
	for _, p := range j.plans {
		if stream := p.Plan.On.Stream; !slices.Contains(streams, stream) {
			streams = append(streams, stream)
			asking, cancel := context.WithTimeout(ctx, askTime)
			consumers, failed := j.cfg.Broker.OnConsumers(asking, stream, j.entry.Job.Name)
			cancel()
			found = append(found, consumers...)
			if !errors.Is(failed, job.ErrNotFound) {
				err = errors.Join(err, failed)
			}
		}
	}
	return found, err
}

// judge notes which plans are drained, for a job that has no consumer and no current plan of on. All are:
// the last consumer is removed only when it is drained. But a producer may have ended after it removed the
// consumer of one plan on a work queue, and before it created that of the next. The acked messages of a
// work queue are removed, so a plan there is drained only if no message of its time is left.
func (j *jobIntake) judge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	done := map[time.Time]bool{}
	for _, p := range j.plans {
		oldest, err := j.cfg.Broker.OldestQueued(ctx, p.Plan.On.Stream)
		if err != nil {
			return err
		}
		done[p.From] = oldest.IsZero() || oldest.After(p.To.Add(settleTime))
	}
	j.done = done
	return nil
}

// begin creates the consumer of a plan. The consumer of a past plan begins no earlier than the
// horizon, because the slots of older messages would expire.
func (j *jobIntake) begin(ctx context.Context, p plans.PastPlan, found []core.OnConsumer) error {
	since := p.From
	if oldest := j.cfg.Now().Add(-j.cfg.Horizon); !p.To.IsZero() && since.Before(oldest) {
		since = oldest
	}
	for _, name := range j.cfg.Names(j.entry.Job.Name) {
		if !slices.ContainsFunc(found, func(c core.OnConsumer) bool { return c.Stream == p.Plan.On.Stream && c.Name == name }) {
			err := j.cfg.Broker.BeginOn(ctx, j.entry.Job.Name, name, p, since)
			passing := errors.Is(err, job.ErrUnknown) || errors.Is(err, job.ErrFull)
			if err != nil && !p.To.IsZero() && !passing && ctx.Err() == nil {
				// The stream of the plan no longer exists, or cannot be read. The later plans
				// must begin all the same.
				j.log.Warn("cannot take messages of a plan that has ended", "on", p.Plan.On.String(), "error", err)
				j.done[p.From] = true
				return nil
			}
			return err
		}
	}
	return nil
}

// remove removes a consumer if the leader of the registry has no definition, or one that does not
// need the consumer. If the definition cannot be decoded, the consumer stays.
func (j *jobIntake) remove(ctx context.Context, c core.OnConsumer) error {
	e, err := j.cfg.Read(ctx, j.entry.Job.Name)
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		return err
	}
	if err == nil && !isRemovable(e, c) {
		return errEdited
	}
	if err := j.cfg.Broker.RemoveOn(ctx, c); err != nil {
		return err
	}
	j.log.Info("removed the consumer of a plan that has ended", "stream", c.Stream, "subject", c.On.Subject, "consumer", c.Name)
	return nil
}

// start starts a taker for a consumer, unless the consumer has one.
func (j *jobIntake) start(ctx context.Context, c planConsumer) {
	k := key(c.consumer)
	if j.takers[k] {
		return
	}
	j.takers[k] = true
	j.running.Go(func() {
		drained, err := newTaker(j, c).run(ctx)
		select {
		case j.results <- result{c, drained, err}:
		case <-ctx.Done():
		}
	})
}
