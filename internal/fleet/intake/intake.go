package intake

import (
	"cmp"
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

// Feed delivers the messages of one consumer. *space.OnFeed implements it.
type Feed interface {
	// Groups asks for up to n messages for at most wait, and passes on what arrived
	// together.
	Groups(ctx context.Context, n int, wait time.Duration, handle func([]jetstream.Msg) error) error

	// State returns how far the consumer has come.
	State(ctx context.Context) (core.OnState, error)
}

// Broker stores the consumers. *kv.Store implements it.
type Broker interface {
	OnConsumers(ctx context.Context, stream, name string) ([]core.OnConsumer, error)
	OldestQueued(ctx context.Context, stream string) (time.Time, error)
	BeginOn(ctx context.Context, name, consumer string, plan plans.PastPlan, since time.Time) error
	AdoptOn(ctx context.Context, c core.OnConsumer, plan plans.PastPlan) error
	RemoveOn(ctx context.Context, c core.OnConsumer) error
}

// Slots is the stream of slots. *stream.Slots implements it.
type Slots interface {
	Put(ctx context.Context, queue string, m core.Message, payload []byte) (duplicate bool, err error)
}

// Config of an Intake. All fields except Logger are required.
type Config struct {
	// Node is the publishing node.
	Node string

	// Jobs returns the definitions of the jobs that messages start, or did by a past plan, except
	// those that cannot be decoded. They may be stale.
	Jobs func() []plans.Entry

	Slots  Slots
	Broker Broker
	Open   func(ctx context.Context, c core.OnConsumer) (Feed, error)

	// Names returns the names that the consumers of a job may have.
	Names func(name string) []string

	// Read reads a definition at the leader of the registry. job.ErrNotFound means that the
	// job is deleted.
	Read func(ctx context.Context, name string) (plans.Entry, error)

	// Now is the broker's clock. Horizon is how old a slot may be and still run.
	Now     func() time.Time
	Horizon time.Duration

	// Logger defaults to none.
	Logger *slog.Logger
}

// Intake takes messages; see Run.
type Intake struct {
	cfg Config
}

const (
	// pollInterval is how often Run calls Config.Jobs.
	pollInterval = time.Second

	// atOnce is how many messages of one consumer are handled at a time.
	atOnce = 64

	// retryDelay is the delay before an unreadable stream is tried again, and before a message is
	// redelivered whose slot could not be published.
	retryDelay = 5 * time.Second

	// settleTime is how long after the end of a plan the stream may still store messages with a
	// timestamp before that end. This happens when the stream changes its leader.
	settleTime = 10 * time.Second

	// askTime bounds the questions about the consumers on one stream. A stream may have no leader,
	// and the other plans of the job must go on.
	askTime = time.Minute

	// removeTime bounds the removal of consumers.
	removeTime = 10 * time.Second
)

// New returns an Intake.
func New(cfg Config) *Intake {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Intake{cfg}
}

// origin is a stream from which a job takes messages, or took them.
type origin struct{ stream, job string }

// runningIntake is a jobIntake and the revision of its definition.
type runningIntake struct {
	revision uint64
	stop     func() // returns when the jobIntake has ended
}

// Run takes messages until ctx ends. It returns when its goroutines have ended.
func (i *Intake) Run(ctx context.Context) {
	running, origins := map[string]runningIntake{}, map[origin]bool{}
	var tidied time.Time
	for ctx.Err() == nil {
		entries := i.cfg.Jobs()
		i.updateJobs(ctx, entries, running)
		for _, e := range entries {
			for _, p := range e.OnPlans() {
				origins[origin{p.Plan.On.Stream, e.Job.Name}] = true
			}
		}
		if time.Since(tidied) >= retryDelay {
			i.tidy(ctx, entries, origins)
			tidied = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
	for _, r := range running {
		r.stop()
	}
}

// updateJobs starts a jobIntake for each new definition, and stops those of replaced ones. A paused job
// has none, and its messages wait.
func (i *Intake) updateJobs(ctx context.Context, entries []plans.Entry, running map[string]runningIntake) {
	wanted := map[string]plans.Entry{}
	for _, e := range entries {
		if !e.Paused {
			wanted[e.Job.Name] = e
		}
	}
	for name, r := range running {
		if e, ok := wanted[name]; !ok || e.Revision != r.revision {
			r.stop()
			delete(running, name)
		}
	}
	for name, e := range wanted {
		if _, ok := running[name]; ok {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		var ended sync.WaitGroup
		ended.Go(func() { newJobIntake(i.cfg, e).run(ctx) })
		running[name] = runningIntake{e.Revision, func() { cancel(); ended.Wait() }}
	}
}

// tidy removes the consumers of deleted jobs, and those on streams that no plan of their job has. A
// definition that is missing from entries may be one that cannot be decoded, so tidy asks the leader
// of the registry before it removes anything.
func (i *Intake) tidy(ctx context.Context, entries []plans.Entry, origins map[origin]bool) {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	for o := range origins {
		if slices.ContainsFunc(entries, func(e plans.Entry) bool { return e.Job.Name == o.job && takesFrom(e, o.stream) }) {
			continue
		}
		e, err := i.cfg.Read(ctx, o.job)
		deleted := errors.Is(err, job.ErrNotFound)
		if err != nil && !deleted || !deleted && takesFrom(e, o.stream) {
			continue
		}
		if err := i.removeConsumers(ctx, o); err != nil {
			i.cfg.Logger.Warn("cannot remove the consumers of messages that started a job", "job", o.job, "stream", o.stream, "error", err)
			if errors.Is(err, job.ErrUnknown) && !errors.Is(err, job.ErrDenied) {
				continue // they may be there: the next call tries again
			}
		}
		delete(origins, o)
	}
}

// removeConsumers removes the consumers of a job on a stream.
func (i *Intake) removeConsumers(ctx context.Context, o origin) error {
	found, err := i.cfg.Broker.OnConsumers(ctx, o.stream, o.job)
	if errors.Is(err, job.ErrNotFound) {
		return nil // the stream is gone
	}
	for _, c := range found {
		err = errors.Join(err, i.cfg.Broker.RemoveOn(ctx, c))
	}
	return err
}

// takesFrom reports whether messages of the stream start the job, or did by a past plan.
func takesFrom(e plans.Entry, stream string) bool {
	return slices.ContainsFunc(e.OnPlans(), func(p plans.PastPlan) bool { return p.Plan.On.Stream == stream })
}
