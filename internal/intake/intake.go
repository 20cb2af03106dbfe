package intake

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
)

// Feed hands out messages; *kv.Feed is one.
type Feed interface {
	Each(ctx context.Context, n int, handle func(jetstream.Msg)) error
}

// Registry knows the jobs that messages start.
type Registry interface {
	// Messaged returns those that messages start, or did by a past plan.
	Messaged() []job.Entry
}

// Slots is the stream of slots; *kv.Slots is one.
type Slots interface {
	Put(ctx context.Context, queue string, m job.Message, payload []byte) error
}

// Config of an Intake. All fields are required but Logger.
type Config struct {
	// Node publishes.
	Node string

	Registry Registry
	Slots    Slots

	// On opens the messages that start the entry's job, Off removes what keeps them
	// for it in a stream.
	On  func(ctx context.Context, e job.Entry) (Feed, error)
	Off func(ctx context.Context, stream, name string) error

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

	// atOnce is how many messages of one job are in hand at a time.
	atOnce = 64

	// again is after how long a stream that cannot be read is asked for again, and
	// a message that could not be made a slot.
	again = 5 * time.Second

	// offTime bounds the removal of a consumer.
	offTime = 10 * time.Second
)

// New returns an Intake.
func New(cfg Config) *Intake {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Intake{cfg}
}

// place is where a job's messages are kept for it.
type place struct{ stream, job string }

// running is the work for one definition.
type running struct {
	revision uint64
	stop     func() // returns when it has ended
}

// Run takes messages until ctx ends. It owns its goroutines.
func (i *Intake) Run(ctx context.Context) {
	work := map[string]running{}
	kept, gone := map[place]bool{}, map[place]bool{}
	for ctx.Err() == nil {
		i.arrange(ctx, work)
		i.tidy(ctx, kept, gone)
		select {
		case <-ctx.Done():
		case <-time.After(look):
		}
	}
	for _, r := range work {
		r.stop()
	}
}

// arrange has the work done that the registry's copy asks for now, and no other.
func (i *Intake) arrange(ctx context.Context, work map[string]running) {
	wanted := map[string]job.Entry{}
	for _, e := range i.cfg.Registry.Messaged() {
		if !e.Job.On.IsZero() && !e.Paused {
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
		ended.Go(func() { i.take(ctx, e) })
		work[name] = running{e.Revision, func() { cancel(); ended.Wait() }}
	}
}

// tidy removes what is kept for no job any more: what was known here as a job's and
// is not now, and what its past names. kept and gone are what was found to be so
// before.
func (i *Intake) tidy(ctx context.Context, kept, gone map[place]bool) {
	now, past := map[place]bool{}, map[place]bool{}
	for _, e := range i.cfg.Registry.Messaged() {
		for _, p := range e.Plans() {
			if !p.Plan.On.IsZero() {
				past[place{p.Plan.On.Stream, e.Job.Name}] = true
			}
		}
		if !e.Job.On.IsZero() {
			now[place{e.Job.On.Stream, e.Job.Name}] = true
		}
	}
	for p := range kept {
		past[p] = true
	}
	for p := range past {
		if now[p] || gone[p] {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, offTime)
		err := i.cfg.Off(ctx, p.stream, p.job)
		cancel()
		if err != nil {
			i.cfg.Logger.Warn("the consumer of messages that started a job is left", "job", p.job, "stream", p.stream, "error", err)
		}
		gone[p] = true
		delete(kept, p)
	}
	for p := range now {
		kept[p] = true
		delete(gone, p)
	}
}

// take takes the messages of one definition until ctx ends.
func (i *Intake) take(ctx context.Context, e job.Entry) {
	log := i.cfg.Logger.With("job", e.Job.Name, "stream", e.Job.On.Stream, "subject", e.Job.On.Subject)
	said := ""
	for ctx.Err() == nil {
		err := i.feed(ctx, e, log)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if text := err.Error(); text != said {
			log.Error("messages that start a job cannot be had; trying again", "error", err)
			said = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// feed opens the messages, and takes them until that fails.
func (i *Intake) feed(ctx context.Context, e job.Entry, log *slog.Logger) error {
	feed, err := i.cfg.On(ctx, e)
	if err != nil {
		return err
	}
	log.Info("each message starts the job")
	var under sync.WaitGroup
	defer under.Wait()
	places := make(chan struct{}, atOnce)
	for ctx.Err() == nil {
		err := feed.Each(ctx, atOnce, func(m jetstream.Msg) {
			places <- struct{}{}
			under.Go(func() {
				defer func() { <-places }()
				i.one(ctx, e, m, log)
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// one makes a slot of a message, and then acks it. What was delivered before ctx
// ended is not seen to any more: it comes again, to whoever asks then.
func (i *Intake) one(ctx context.Context, e job.Entry, m jetstream.Msg, log *slog.Logger) {
	meta, err := m.Metadata()
	if err != nil {
		return
	}
	parent := tracing.Traceparent(tracing.Continue(ctx, m.Headers()))
	for _, s := range job.Started(e, m.Headers().Get(jetstream.MsgIDHeader), meta.Sequence.Stream, meta.Timestamp, len(m.Data())) {
		s.Node, s.Traceparent = i.cfg.Node, parent
		payload := m.Data()
		if s.Refused != "" {
			log.Error("a message cannot be handed on: its run is recorded as failed", "slot", s.Slot.ID(), "reason", s.Refused)
			payload = nil
		}
		if err := i.cfg.Slots.Put(ctx, e.Job.Queue, s, payload); err != nil {
			if ctx.Err() == nil {
				log.Warn("a message was made no slot; trying again", "slot", s.Slot.ID(), "error", err)
				_ = m.NakWithDelay(again)
			}
			return
		}
	}
	_ = m.Ack() // a lost one brings the message again, and the same slot
}
