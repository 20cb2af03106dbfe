package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// PublishCeiling publishes messages by hand. The measured time is from the first message to the last
// acknowledgement.
func PublishCeiling(ctx context.Context, connect Connect, name string, replicas, slots int, shape Shape) (rate Rate, err error) {
	err = byHand(ctx, connect, name, replicas, shape, func(h *hand, _ jetstream.Consumer) error {
		messages := h.publications(slots, slots)
		began := time.Now()
		err := h.publish(ctx, messages)
		rate = Rate{slots, time.Since(began)}
		return err
	})
	return rate, err
}

// Published is how fast producers published slots, and how many messages they sent for each slot.
type Published struct {
	Rate
	Sent float64
}

// The lead is the time between now and the instant at which all slots are due. The definitions are
// written within the lead. That is not measured.
const (
	leadEach  = 150 * time.Microsecond // for each definition
	leadLeast = 2 * time.Second
	leadTries = 4 // each doubles the lead
)

// errLate means that the definitions were not written within the lead.
var errLate = errors.New("the registry was not written in time")

// PublishDue measures producers, each on its own connection, that publish slots which are all due
// at one instant. The measured time is from that instant to the timestamp of the last message, both
// by the broker's clock. No producer joins or leaves meanwhile. For each try PublishDue creates a
// namespace, whose name begins with the given one, and deletes it.
func PublishDue(ctx context.Context, connect Connect, namespace string, replicas, slots, producers int) (p Published, err error) {
	err = inTime(slots, func(try int, lead time.Duration) error {
		p, err = publishDue(ctx, connect, fmt.Sprintf("%s_%d", namespace, try), replicas, slots, producers, lead)
		return err
	})
	return p, err
}

// inTime calls do, which must write the given number of definitions within the lead. If the lead was
// too short, inTime tries again with a longer one.
func inTime(definitions int, do func(try int, lead time.Duration) error) (err error) {
	lead := leadLeast + time.Duration(definitions)*leadEach
	for try := range leadTries {
		if err = do(try, lead); !errors.Is(err, errLate) {
			return err
		}
		lead *= 2
	}
	return err
}

func publishDue(ctx context.Context, connect Connect, namespace string, replicas, slots, producers int, lead time.Duration) (_ Published, err error) {
	f, err := startFleet(ctx, connect, namespace, replicas, producers, nil)
	defer func() { err = errors.Join(err, f.stop()) }()
	if err != nil {
		return Published{}, err
	}
	due, err := f.plan(ctx, slots, job.Job{}, lead)
	if err != nil {
		return Published{}, err
	}
	stream, err := f.js.Stream(ctx, namespace+"_slots")
	if err != nil {
		return Published{}, err
	}
	before := f.sent()
	state, err := until(f.ctx, stream, 20*time.Millisecond, func(s jetstream.StreamState) bool { return s.Msgs >= uint64(slots) })
	if err != nil {
		return Published{}, fmt.Errorf("%d of %d slots were published: %w", state.Msgs, slots, err)
	}
	return Published{Rate{slots, state.LastTime.Sub(due)}, float64(f.sent()-before) / float64(slots)}, nil
}

// plan writes the definitions of jobs that have one slot each, all at one instant. It waits until
// shortly before that instant, and returns it.
func (f *fleet) plan(ctx context.Context, slots int, like job.Job, lead time.Duration) (at time.Time, err error) {
	at = time.Now().Add(lead).Truncate(time.Second)
	like.Schedule = "@at " + at.UTC().Format(time.RFC3339)
	if _, err := enter(ctx, f.store, makeJobs(slots, like)); err != nil {
		return at, err
	}
	const settled = time.Second // within this time each producer learns all jobs, and that the others know them
	if time.Until(at) < settled {
		return at, fmt.Errorf("%w: %d definitions in %v", errLate, slots, lead)
	}
	return at, f.sleep(time.Until(at) - settled/4)
}

// Connect opens a connection and creates its JetStream client.
type Connect = func(ctx context.Context) (jetstream.JetStream, error)

// fleet is the replicas of one namespace, each on its own connection.
type fleet struct {
	js     jetstream.JetStream // on a connection that no replica uses
	store  *kv.Store           // on the same connection
	conns  []*nats.Conn
	ctx    context.Context
	cancel context.CancelFunc
	group  *errgroup.Group
	name   string

	connect  Connect
	replicas int
}

// newFleet creates a namespace for a fleet without replicas. The caller must stop the fleet, even after an error.
func newFleet(ctx context.Context, connect Connect, namespace string, replicas int) (f *fleet, err error) {
	f = &fleet{name: namespace, connect: connect, replicas: replicas}
	running, cancel := context.WithCancel(ctx)
	f.cancel = cancel
	f.group, f.ctx = errgroup.WithContext(running)
	if f.js, err = connect(ctx); err != nil {
		return f, err
	}
	f.store, err = open(ctx, f.js, namespace, replicas)
	return f, err
}

// startFleet starts producers and returns when all are up. The first is also the worker, unless
// handle is nil. The caller must stop the fleet, even after an error.
func startFleet(ctx context.Context, connect Connect, namespace string, replicas, producers int, handle job.Handler) (f *fleet, err error) {
	if f, err = newFleet(ctx, connect, namespace, replicas); err != nil {
		return f, err
	}
	for range producers {
		if err := f.add(true, handle); err != nil {
			return f, err
		}
		handle = nil
	}
	return f, f.up()
}

// add starts a replica on a connection of its own. It is a worker if handle is not nil.
func (f *fleet) add(produces bool, handle job.Handler) error {
	js, err := f.connect(f.ctx)
	if err != nil {
		return err
	}
	f.conns = append(f.conns, js.Conn())
	store, err := open(f.ctx, js, f.name, f.replicas)
	if err != nil {
		return err
	}
	cfg := replica.Config{Store: store, Produce: produces, Handlers: func() []string { return nil }}
	if handle != nil {
		cfg.Queues, cfg.Handler = []string{"default"}, func(string) job.Handler { return handle }
	}
	f.group.Go(func() error { return replica.New(cfg).Run(f.ctx) })
	return nil
}

// up waits until all nodes are up, and then for a second, in which they discover each other.
func (f *fleet) up() error {
	for {
		nodes, err := f.store.Nodes().List(f.ctx)
		if err != nil {
			return err
		}
		if len(nodes) == len(f.conns) {
			return f.sleep(time.Second)
		}
		if err := f.sleep(20 * time.Millisecond); err != nil {
			return err
		}
	}
}

// sent returns how many messages the fleet has sent.
func (f *fleet) sent() (n uint64) {
	for _, nc := range f.conns {
		n += nc.Stats().OutMsgs
	}
	return n
}

// sleep waits. If the fleet ends, it returns immediately, with the reason.
func (f *fleet) sleep(d time.Duration) error {
	if wire.Wait(f.ctx, d) {
		return nil
	}
	return context.Cause(f.ctx)
}

// stop ends the fleet and removes its namespace.
func (f *fleet) stop() error {
	f.cancel()
	err := f.group.Wait()
	for _, nc := range f.conns {
		nc.Close()
	}
	if f.js != nil {
		err = errors.Join(err, remove(f.ctx, f.js, f.name))
		f.js.Conn().Close()
	}
	return err
}

// burst is the result for slots that are all due at one instant: how long after that instant the
// last slot was stored, and how long after it the last slot was acked.
type burst struct{ published, acked time.Duration }

// measureBurst measures a fleet that publishes and runs slots that are all due at one instant, in a
// namespace that it creates and deletes. Each producer has its own connection. The first producer
// is also the only worker, with default settings and a handler that does nothing.
func measureBurst(ctx context.Context, connect Connect, namespace string, replicas, slots, producers int, lead time.Duration) (b burst, err error) {
	var runs atomic.Int64
	ran := make(chan struct{})
	f, err := startFleet(ctx, connect, namespace, replicas, producers, func(context.Context, job.Run) error {
		if runs.Add(1) == int64(slots) {
			close(ran)
		}
		return nil
	})
	defer func() { err = errors.Join(err, f.stop()) }()
	if err != nil {
		return b, err
	}
	at, err := f.plan(ctx, slots, job.Job{Overlap: job.OverlapAllow}, lead)
	if err != nil {
		return b, err
	}
	clock, err := f.offset()
	if err != nil {
		return b, err
	}
	stream, err := f.js.Stream(ctx, namespace+"_slots")
	if err != nil {
		return b, err
	}
	select {
	case <-ran: // polling before that would disturb the broker
	case <-f.ctx.Done():
		return b, context.Cause(f.ctx)
	}
	state, err := empty(f.ctx, stream)
	return burst{state.LastTime.Sub(at), time.Now().Add(clock).Sub(at)}, err
}

func (r *run) burst(ctx context.Context) error {
	var ours burst
	var atOnce Rate
	what := fmt.Sprintf("burst: %d slots due in one second, producers: %d, workers: 1", r.Slots, r.Producers)
	err := r.besideDrains(ctx, what, func(shape Shape) error {
		rate, err := BurstCeiling(ctx, r.Connect, r.name("hand"), r.Replicas, r.Slots, shape)
		if err != nil {
			return err
		}
		atOnce = best(atOnce, rate)
		return inTime(r.Slots, func(_ int, lead time.Duration) error {
			b, err := measureBurst(ctx, r.Connect, r.name("burst"), r.Replicas, r.Slots, r.Producers, lead)
			if err == nil && (ours.acked == 0 || b.acked < ours.acked) {
				ours = b
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	res := less(Due, "ms", ms(ours.acked), ms(r.ceiling.Took), r.Slots)
	res.Producers, res.Published, res.AtOnce = r.Producers, ms(ours.published), ms(atOnce.Took)
	return r.result(res)
}
