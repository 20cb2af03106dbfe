package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Registry is where the definitions come from.
type Registry interface {
	// Watch calls fn for every stored job, then once with Ready, then for every
	// change, deletions included, one call at a time and in the broker's order.
	// Of several changes of one job it may show the last only. It returns nil
	// when ctx ends, else why it cannot go on.
	Watch(ctx context.Context, fn func(core.RegistryEvent)) error
}

// Watermark is the stored word about what has been published.
type Watermark interface {
	// Read asks the stream's leader. When there is no watermark the error wraps
	// job.ErrNotFound, and the revision is the one to create it at.
	Read(ctx context.Context) (core.Watermark, uint64, error)

	// Write stores wm if revision is the last one and returns the new one. It
	// repeats the write until it is answered or ctx ends: job.ErrConflict is a
	// definite no, job.ErrUnknown may have happened.
	Write(ctx context.Context, wm core.Watermark, revision uint64) (uint64, error)
}

// Slots is the stream that slots are published to.
type Slots interface {
	// Send sends one slot message on its way. Unless it returns an error it calls
	// answered once, from any goroutine and within some seconds: duplicate
	// says that a copy was there already, an error that there was no answer, or a
	// refusal. After any error the same message may be sent again.
	Send(queue string, m core.Message, payload []byte, answered func(duplicate bool, err error)) error

	// Connected is false while it is of no use to try.
	Connected() bool
}

// Clock is the broker's clock as well as this node knows it. Its methods are
// safe for concurrent use.
type Clock interface {
	Now() time.Time

	// Error bounds how far Now may be off.
	Error() time.Duration

	// Plausible returns an error, which says by how much, while the broker's clock
	// is so far from this node's own that one of the two must be badly wrong. The
	// producer then stops: a broker whose clock is in 2036 must not carry the
	// watermark there.
	Plausible() error
}

// Peers are the other producers of the fleet.
type Peers interface {
	// Announce tells all of them, at most once. It does not wait.
	Announce(core.Announcement) error

	// Listen calls fn for what each announces from now on, one call at a time,
	// until stop is called. What is told while there is no connection is lost.
	Listen(fn func(core.Announcement)) (stop func(), err error)
}

// Config is what a Producer is made of. Node and the interfaces are required,
// Peers apart.
type Config struct {
	// Node is this process's incarnation; it travels with every message.
	Node string

	Registry  Registry
	Watermark Watermark
	Slots     Slots
	Clock     Clock

	// Peers to share the work with. Nil: this producer publishes every slot, and
	// whoever else does so publishes a copy.
	Peers Peers

	// Vouched reports whether a live record says that a node produces, and since when it
	// runs, as far as that is known here. Announcements of any other are not believed. It
	// must not block. Nil: all are, and began when they say.
	Vouched func(node string) (started time.Time, ok bool)

	// ZonesBehind reports whether a live producer has newer time zone data than this
	// program. While it does, this producer neither moves the watermark nor takes part with
	// others if there are jobs in time zones other than UTC. It must not block. Nil: none has.
	ZonesBehind func() bool

	// Started is when the incarnation began, by the broker's clock. The oldest
	// producers of a fleet take part, the others rest.
	Started time.Time

	// StandbyDelay is how long the others hold their copies of a slot for the
	// producer whose share it is. Zero: DefaultStandbyDelay.
	StandbyDelay time.Duration

	// Horizon is how far back a missed slot may lie and still run. Zero:
	// job.DefaultHorizon. It belongs to the namespace: all producers have to
	// have the same.
	Horizon time.Duration

	// Late is how long after its due time a slot is still simply published;
	// past that its job's catch-up policy decides. Zero: 1 min.
	Late time.Duration

	// Handed is told of each slot that is known to be in the stream, whoever
	// published it. It must not block. Nil: nobody is told.
	Handed func(queue string, m core.Message)

	// TakesPart is told whether this producer is one of those that take part,
	// whenever that changes; at first it does not. It must not block. Nil: nobody
	// is told.
	TakesPart func(bool)

	// Stepped tells that the clock was set, so that what is due then need not wait
	// for the next look at it. Nil: a look a second is enough.
	Stepped <-chan struct{}

	// Nap sleeps for a millisecond or two, more exactly than a timer does, or less.
	// Default: time.Sleep.
	Nap func(time.Duration)

	// auditEvery replaces the constant of that name in tests.
	auditEvery time.Duration

	// Logger takes what an operator should know. Nil: nothing is logged.
	Logger *slog.Logger
}

// Defaults are the zero values of Config.Late and Config.StandbyDelay.
const (
	DefaultLate         = time.Minute
	DefaultStandbyDelay = 250 * time.Millisecond
)

func (c Config) withDefaults() Config {
	if c.Horizon == 0 {
		c.Horizon = job.DefaultHorizon
	}
	if c.Late == 0 {
		c.Late = DefaultLate
	}
	if c.ZonesBehind == nil {
		c.ZonesBehind = func() bool { return false }
	}
	if c.TakesPart == nil {
		c.TakesPart = func(bool) {}
	}
	if c.Nap == nil {
		c.Nap = time.Sleep
	}
	if c.Handed == nil {
		c.Handed = func(string, core.Message) {}
	}
	if c.StandbyDelay == 0 {
		c.StandbyDelay = DefaultStandbyDelay
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Node == "":
		return fmt.Errorf("%w producer: no node name", job.ErrInvalid)
	case c.Registry == nil || c.Watermark == nil || c.Slots == nil || c.Clock == nil:
		return fmt.Errorf("%w producer: registry, watermark, slots and clock are all required", job.ErrInvalid)
	case c.Late < 0:
		return fmt.Errorf("%w producer: late %v must not be negative", job.ErrInvalid, c.Late)
	case c.StandbyDelay < 0:
		return fmt.Errorf("%w producer: standby delay %v must not be negative", job.ErrInvalid, c.StandbyDelay)
	case c.Horizon < 0:
		return fmt.Errorf("%w producer: horizon %v must not be negative", job.ErrInvalid, c.Horizon)
	}
	return nil
}

// Producer publishes the slots of every job in the registry as they fall due.
// Any number of producers may run beside each other: what they publish is the
// same, under the same names.
type Producer struct {
	cfg   Config
	stats counters
	place atomic.Int32 // in the fleet, plus one; zero: it does not take part
}

// First reports whether this producer is the first, by age, of those that live
// and take part: for what one of a fleet should do now and then. It is a hint.
// None may be the first for some seconds, or two.
func (p *Producer) First() bool { return p.place.Load() == 1 }

// New checks the configuration; its errors wrap job.ErrInvalid. Nothing starts
// before Run.
func New(cfg Config) (*Producer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Producer{cfg: cfg}, nil
}

// Run publishes until ctx ends, and then returns nil. It returns an error when
// it cannot go on: the registry cannot be watched any more. An absent or slow broker is
// waited for, and a watermark that cannot be read is done without. Run owns every goroutine that it starts; it may be called once at
// a time.
func (p *Producer) Run(ctx context.Context) error {
	for {
		err := p.run(ctx)
		if !errors.Is(err, errReset) {
			return err
		}
		p.cfg.Logger.Warn("starting over from the watermark", "reason", err)
	}
}

// run is Run, until the watermark is reset.
func (p *Producer) run(ctx context.Context) error {
	k := &keeper{Watermark: p.cfg.Watermark, node: p.cfg.Node, log: p.cfg.Logger, wake: make(chan struct{}, 1), start: p.start}
	// The watermark is read before the registry: what is in the registry then
	// is at least as new, so that nothing falls between the two.
	if err := k.refresh(ctx); err != nil {
		return unlessEnded(ctx, err)
	}
	events := make(chan core.RegistryEvent, 64)
	s := newShift(p, k)
	stop, err := p.listen(s.said)
	if err != nil {
		return err
	}
	defer stop()
	s.ask()
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return p.watch(inner, events) })
	group.Go(func() error { return k.run(inner) })
	group.Go(func() error { return s.run(inner, events) })
	defer s.leave()
	return unlessEnded(ctx, group.Wait())
}

// start is the position from which a producer goes on that knows of none: nothing older
// than the horizon may run, and plans that were in force by then are followed from there.
// It is false while the clock is not believed.
func (p *Producer) start() (position, bool) {
	at := p.cfg.Clock.Now().Add(-p.cfg.Clock.Error() - p.cfg.Horizon)
	return position{time: at, registry: at}, p.cfg.Clock.Plausible() == nil
}

func (p *Producer) watch(ctx context.Context, events chan<- core.RegistryEvent) error {
	err := p.cfg.Registry.Watch(ctx, func(ev core.RegistryEvent) {
		select {
		case events <- ev:
		case <-ctx.Done():
		}
	})
	if err == nil {
		err = errors.New("it ended by itself")
	}
	return unlessEnded(ctx, fmt.Errorf("watch the job registry: %w", err))
}

// listen has what other producers announce sent to said: not what this one does, which
// would wake the shift each time that it speaks. What the shift cannot take in is
// dropped: there will be more of it.
func (p *Producer) listen(said chan<- core.Announcement) (stop func(), err error) {
	if p.cfg.Peers == nil {
		return func() {}, nil
	}
	stop, err = p.cfg.Peers.Listen(func(a core.Announcement) {
		if a.Node == p.cfg.Node {
			return
		}
		select {
		case said <- a:
		default:
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen to the other producers: %w", err)
	}
	return stop, nil
}

// takes notes this producer's place among those that take part, 0 for none.
func (p *Producer) takes(place int) {
	if old := p.place.Swap(int32(place)); (old > 0) != (place > 0) {
		p.cfg.TakesPart(place > 0)
	}
}

// unlessEnded is err, or nil when ctx has ended: what fails then fails because
// of that.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
