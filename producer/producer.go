package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Registry is the source of the definitions.
type Registry interface {
	// Watch calls fn for every stored job, then once with Ready, then for every change,
	// deletions included, one call at a time and in the broker's order. Of several changes
	// of one job it may deliver only the last. It returns nil when ctx ends, and otherwise
	// the reason why it cannot go on.
	Watch(ctx context.Context, fn func(plans.RegistryEvent)) error
}

// Watermark is the stored record of what has been published.
type Watermark interface {
	// Read reads from the stream's leader. If there is no watermark, the error wraps
	// job.ErrNotFound, and the revision is the one at which to create it.
	Read(ctx context.Context) (exchange.Watermark, uint64, error)

	// Write stores wm if revision is the last one, and returns the new revision. It repeats
	// the write until it is answered or ctx ends. job.ErrConflict means that it was not
	// stored, job.ErrUnknown that it may have been.
	Write(ctx context.Context, wm exchange.Watermark, revision uint64) (uint64, error)
}

// Slots is the stream of slot messages.
type Slots interface {
	// Send sends one slot message. Unless it returns an error, it calls answered once, from
	// any goroutine and within some seconds. duplicate means that the stream already had
	// the message. err means that the broker did not answer, or refused the message. After an
	// error of either kind the same message may be sent again.
	Send(queue string, m core.Message, payload []byte, answered func(duplicate bool, err error)) error

	// Connected is false while publications cannot succeed.
	Connected() bool
}

// Clock is this node's estimate of the broker's clock. Its methods are safe for concurrent
// use.
type Clock interface {
	Now() time.Time

	// Error bounds the error of Now.
	Error() time.Duration

	// Plausible returns an error while the broker's clock differs so much from this node's own
	// that one of the two must be badly wrong. The producer pauses then: a broker whose clock
	// says 2036 must not move the watermark to 2036.
	Plausible() error
}

// Peers are the other producers of the fleet.
type Peers interface {
	// Announce sends to all of them, at most once. It does not wait.
	Announce(exchange.Announcement) error

	// Listen calls fn for each announcement from now on, one call at a time, until stop is
	// called. Announcements are lost while there is no connection.
	Listen(fn func(exchange.Announcement)) (stop func(), err error)
}

// Config configures a Producer. Node and the interfaces other than Peers are required.
type Config struct {
	// Node is this process's incarnation. Every message names it.
	Node string

	Registry  Registry
	Watermark Watermark
	Slots     Slots
	Clock     Clock

	// Peers are the producers that share the work. Nil: this producer publishes every slot.
	Peers Peers

	// Vouched reports whether a live record says that the node produces, and when the node
	// started, as far as this node knows. If ok is false, the node's announcements are ignored.
	// An announcement with another start is ignored too. Vouched must not block. Nil: every
	// announcement counts.
	Vouched func(node string) (started time.Time, ok bool)

	// ZonesBehind reports whether a live producer has newer time zone data than this program.
	// While it returns true, and a job has a time zone other than UTC, this producer does not
	// move the watermark, and is active only if it is alone. It must not block. Nil: no producer
	// has newer data.
	ZonesBehind func() bool

	// Started is when the incarnation started, as its node record says. The oldest producers of a
	// fleet are active, the others rest.
	Started time.Time

	// StandbyDelay is how long the owner of a slot may be silent before this producer publishes
	// its copy. The time that the broker now takes to answer is added. If the owner still
	// announces itself, the copy is kept for up to 2 s. Zero: 250 ms.
	StandbyDelay time.Duration

	// Horizon is how old a late slot may be and still run. Zero: job.DefaultHorizon. It belongs
	// to the namespace: all producers must have the same.
	Horizon time.Duration

	// Stored is called for each slot that the stream has stored: the stream acknowledged this
	// producer's publication, or another producer announced that it has published the slot. It
	// must not block.
	Stored func(queue string, m core.Message)

	// SetActive is called when this producer becomes active or inactive. It starts
	// inactive. The function must not block.
	SetActive func(bool)

	// Reconnects returns how often the connection was restored. So the producer notices a connection
	// that was lost and restored between two turns. It must not block. Nil: the producer does not
	// notice that.
	Reconnects func() uint64

	// Stepped signals that the clock was set, so that slots that are due now need not wait
	// for the next turn. Nil: the clock is read once a second.
	Stepped <-chan struct{}

	// Nap sleeps for at most the given time, which is at most two milliseconds. It should be
	// more exact than a timer. Nil: time.Sleep.
	Nap func(time.Duration)

	// auditEvery replaces the constant of that name in tests.
	auditEvery time.Duration

	// Logger receives what an operator should know. Nil: nothing is logged.
	Logger *slog.Logger
}

const defaultStandbyDelay = 250 * time.Millisecond

func (c Config) withDefaults() Config {
	c.Horizon = cmp.Or(c.Horizon, job.DefaultHorizon)
	c.StandbyDelay = cmp.Or(c.StandbyDelay, defaultStandbyDelay)
	c.auditEvery = cmp.Or(c.auditEvery, auditEvery)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.ZonesBehind == nil {
		c.ZonesBehind = func() bool { return false }
	}
	if c.Reconnects == nil {
		c.Reconnects = func() uint64 { return 0 }
	}
	if c.SetActive == nil {
		c.SetActive = func(bool) {}
	}
	if c.Nap == nil {
		c.Nap = time.Sleep
	}
	if c.Stored == nil {
		c.Stored = func(string, core.Message) {}
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Node == "":
		return fmt.Errorf("%w producer: no node name", job.ErrInvalid)
	case c.Registry == nil || c.Watermark == nil || c.Slots == nil || c.Clock == nil:
		return fmt.Errorf("%w producer: registry, watermark, slots and clock are all required", job.ErrInvalid)
	case c.StandbyDelay < 0:
		return fmt.Errorf("%w producer: standby delay %v: must not be negative", job.ErrInvalid, c.StandbyDelay)
	case c.Horizon < 0:
		return fmt.Errorf("%w producer: horizon %v: must not be negative", job.ErrInvalid, c.Horizon)
	}
	return nil
}

// Producer publishes the slots of every job in the registry when they fall due. Any number of
// producers may run side by side: they publish the same slots under the same message IDs.
type Producer struct {
	cfg   Config
	stats counters
	rank  atomic.Int32 // among the active producers, from 1; zero: this one is not active
}

// First reports whether this producer is the oldest active one, for work that one node of a
// fleet should do now and then. It is a hint: for some seconds there may be none, or two.
func (p *Producer) First() bool { return p.rank.Load() == 1 }

// New checks the configuration; its errors wrap job.ErrInvalid. It starts nothing.
func New(cfg Config) (*Producer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Producer{cfg: cfg}, nil
}

// Run publishes until ctx ends, and then returns nil. It returns an error if it cannot watch the
// registry any more, or cannot listen to the other producers. It waits for an absent or slow
// broker, and goes on without a watermark that cannot be read. Run owns every goroutine that it
// starts. It must not be called concurrently.
func (p *Producer) Run(ctx context.Context) error {
	for {
		err := p.run(ctx)
		if !errors.Is(err, errReset) {
			return err
		}
		p.cfg.Logger.Warn("starting over from the watermark", "reason", err)
	}
}

// run does the work of Run until ctx ends, or the watermark is reset (errReset).
func (p *Producer) run(ctx context.Context) error {
	k := &keeper{Watermark: p.cfg.Watermark, node: p.cfg.Node, log: p.cfg.Logger, wake: make(chan struct{}, 1), fallback: p.fallback}
	// The watermark is read before the registry. So the registry is at least as new, and no
	// change falls between the two.
	if err := k.refresh(ctx); err != nil {
		return unlessEnded(ctx, err)
	}
	events := make(chan plans.RegistryEvent, 64)
	s := newSession(p, k)
	stop, err := p.listen(s.announcements)
	if err != nil {
		return err
	}
	defer stop()
	if !s.away {
		s.ask()
	}
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return p.watch(inner, events) })
	group.Go(func() error { return k.run(inner) })
	group.Go(func() error { return s.run(inner, events) })
	defer s.leave()
	return unlessEnded(ctx, group.Wait())
}

// fallback returns the position from which a producer starts without a readable watermark.
// Nothing older than the horizon may run, so the producer starts there. The second result is
// false while the clock is not plausible.
func (p *Producer) fallback() (position, bool) {
	at := p.cfg.Clock.Now().Add(-p.cfg.Clock.Error() - p.cfg.Horizon)
	return position{time: at, registryTime: at}, p.cfg.Clock.Plausible() == nil
}

func (p *Producer) watch(ctx context.Context, events chan<- plans.RegistryEvent) error {
	err := p.cfg.Registry.Watch(ctx, func(ev plans.RegistryEvent) {
		select {
		case events <- ev:
		case <-ctx.Done():
		}
	})
	if err == nil {
		err = errors.New("the watch ended without an error")
	}
	return unlessEnded(ctx, fmt.Errorf("watch the job registry: %w", err))
}

// listen sends the announcements of the other producers to the channel. It leaves out this
// producer's own, each of which would wake the loop for nothing. If the channel is full, it
// drops the announcement, since peers announce themselves again.
func (p *Producer) listen(announcements chan<- exchange.Announcement) (stop func(), err error) {
	if p.cfg.Peers == nil {
		return func() {}, nil
	}
	stop, err = p.cfg.Peers.Listen(func(a exchange.Announcement) {
		if a.Node != p.cfg.Node {
			core.TrySend(announcements, a)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen to the other producers: %w", err)
	}
	return stop, nil
}

// setRank records this producer's rank among the active ones, from 1; 0: it is not active.
func (p *Producer) setRank(rank int) {
	if old := p.rank.Swap(int32(rank)); (old > 0) != (rank > 0) {
		p.cfg.SetActive(rank > 0)
	}
}

// unlessEnded returns err, or nil if ctx has ended, which then caused the error.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
