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
	"github.com/cronce-io/cronce/job"
)

// Feed hands out the messages of one consumer; *kv.OnFeed is one.
type Feed interface {
	// Groups asks for up to n messages for at most wait, and hands on what has come
	// together.
	Groups(ctx context.Context, n int, wait time.Duration, handle func([]jetstream.Msg) error) error

	// State asks how far the consumer has come.
	State(ctx context.Context) (core.OnState, error)
}

// Broker keeps the consumers; *kv.Store is one, but for what Open returns.
type Broker interface {
	OnConsumers(ctx context.Context, stream, name string) ([]core.OnConsumer, error)
	BeginOn(ctx context.Context, name, consumer string, plan core.PastPlan, since time.Time) error
	AdoptOn(ctx context.Context, c core.OnConsumer, plan core.PastPlan) error
	Off(ctx context.Context, stream, consumer string) error
}

// Registry knows the jobs that messages start.
type Registry interface {
	// Messaged returns those that messages start, or did by a past plan, as far as
	// their definitions can be read.
	Messaged() []core.Entry
}

// Slots is the stream of slots; *kv.Slots is one.
type Slots interface {
	Put(ctx context.Context, queue string, m core.Message, payload []byte) error
}

// Config of an Intake. All fields are required but Settle and Logger.
type Config struct {
	// Node publishes.
	Node string

	Registry Registry
	Slots    Slots
	Broker   Broker
	Open     func(ctx context.Context, c core.OnConsumer) (Feed, error)

	// Names are the names that the consumers of a job may have.
	Names func(name string) []string

	// Read reads a definition at the registry's leader. job.ErrNotFound: the job is
	// deleted.
	Read func(ctx context.Context, name string) (core.Entry, error)

	// Now is the broker's clock, Horizon how old a slot may be and still run.
	Now     func() time.Time
	Horizon time.Duration

	// Settle is for how long after the end of a plan a message of it may still come to
	// be stored: while a stream changes its leader. Default 10 s.
	Settle time.Duration

	// Logger: default none.
	Logger *slog.Logger
}

// Intake takes messages; see Run.
type Intake struct {
	cfg Config
}

const (
	// look is how often the registry's copy is looked at.
	look = time.Second

	// atOnce is how many messages of one consumer are handled at a time.
	atOnce = 64

	// again is after how long a stream that cannot be read is asked for again, and a
	// message delivered again that could not be made a slot.
	again = 5 * time.Second

	// removeTime bounds the removal of consumers.
	removeTime = 10 * time.Second
)

// New returns an Intake.
func New(cfg Config) *Intake {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Settle <= 0 {
		cfg.Settle = 10 * time.Second
	}
	return &Intake{cfg}
}

// place is a stream that a job takes messages of, or took.
type place struct{ stream, job string }

// running is the work for one definition.
type running struct {
	revision uint64
	stop     func() // returns when it has ended
}

// Run takes messages until ctx ends. It owns its goroutines.
func (i *Intake) Run(ctx context.Context) {
	work, kept := map[string]running{}, map[place]bool{}
	var tidied time.Time
	for ctx.Err() == nil {
		entries := i.cfg.Registry.Messaged()
		i.follow(ctx, entries, work)
		for _, e := range entries {
			for _, p := range e.OnPlans() {
				kept[place{p.Plan.On.Stream, e.Job.Name}] = true
			}
		}
		if time.Since(tidied) >= again {
			i.tidy(ctx, entries, kept)
			tidied = time.Now()
		}
		sleep(ctx, look)
	}
	for _, r := range work {
		r.stop()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// follow starts the work for definitions that are new, and stops that for those that
// were replaced. A paused job takes nothing, and its messages wait.
func (i *Intake) follow(ctx context.Context, entries []core.Entry, work map[string]running) {
	wanted := map[string]core.Entry{}
	for _, e := range entries {
		if !e.Paused {
			wanted[e.Job.Name] = e
		}
	}
	for name, r := range work {
		if e, ok := wanted[name]; !ok || e.Revision != r.revision {
			r.stop()
			delete(work, name)
		}
	}
	for name, e := range wanted {
		if _, ok := work[name]; ok {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		var ended sync.WaitGroup
		ended.Go(func() { newFollower(i.cfg, e).run(ctx) })
		work[name] = running{e.Revision, func() { cancel(); ended.Wait() }}
	}
}

// tidy removes the consumers of jobs that are deleted, or that no plan of their job
// knows any more. What the registry's copy lacks may be a definition that cannot be
// read, so the registry's leader is asked before anything is removed.
func (i *Intake) tidy(ctx context.Context, entries []core.Entry, kept map[place]bool) {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	for p := range kept {
		if slices.ContainsFunc(entries, func(e core.Entry) bool { return e.Job.Name == p.job && takesFrom(e, p.stream) }) {
			continue
		}
		e, err := i.cfg.Read(ctx, p.job)
		deleted := errors.Is(err, job.ErrNotFound)
		if err != nil && !deleted || !deleted && takesFrom(e, p.stream) {
			continue
		}
		for _, name := range i.cfg.Names(p.job) {
			if err := i.cfg.Broker.Off(ctx, p.stream, name); err != nil {
				i.cfg.Logger.Warn("cannot remove the consumer of messages that started a job", "job", p.job, "stream", p.stream, "consumer", name, "error", err)
			}
		}
		delete(kept, p)
	}
}

// takesFrom reports whether messages of the stream start the job, or did by a past plan.
func takesFrom(e core.Entry, stream string) bool {
	return slices.ContainsFunc(e.OnPlans(), func(p core.PastPlan) bool { return p.Plan.On.Stream == stream })
}
