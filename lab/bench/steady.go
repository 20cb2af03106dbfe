package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/job"
)

// Lateness holds the times from the instant of each slot to the start of its handler, sorted.
type Lateness []time.Duration

// At returns the quantile q, from 0 to 1. It is zero if there are no times.
func (l Lateness) At(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(int(q*float64(len(l))), len(l)-1)]
}

// Steady is the result for a fleet with a steady load.
type Steady struct {
	Late Lateness

	// Sent is how many messages the fleet sent for each slot, and Server how many the server received
	// for each slot (zero: it was not asked). Idle is how many messages a second the fleet sends when
	// nothing is due. Sent and Server do not include these.
	Sent, Server, Idle float64
}

const (
	// warmUp is how many seconds at the start are not measured.
	warmUp = 2

	// idleFor is how long a fleet without jobs is measured.
	idleFor = 3 * time.Second
)

// MeasureSteady runs jobs that are due every second, with one worker and the given number of
// producers, each on its own connection. It creates a namespace and deletes it.
func MeasureSteady(ctx context.Context, connect Connect, server func(context.Context) (int64, error), namespace string, replicas, jobs, producers, seconds int) (s Steady, err error) {
	w := newWatch(jobs, seconds)
	f, err := startFleet(ctx, connect, namespace, replicas, producers, w.handle)
	defer func() { err = errors.Join(err, f.stop()) }()
	if err != nil {
		return s, err
	}
	count := func() counts {
		c := counts{at: time.Now(), sent: f.sent()}
		if server != nil {
			c.server, c.err = server(ctx)
		}
		return c
	}
	before := count()
	if err := f.sleep(idleFor); err != nil {
		return s, err
	}
	idle := count().since(before)
	if idle.err != nil {
		return s, idle.err
	}
	clock, err := f.offset()
	if err != nil {
		return s, err
	}
	w.begin(clock, count)
	if _, err := enter(ctx, f.store, makeJobs(jobs, job.Job{Schedule: "* * * * * *", Overlap: job.OverlapAllow})); err != nil {
		return s, err
	}
	select {
	case <-w.done:
	case <-f.ctx.Done():
		return s, context.Cause(f.ctx)
	}
	busy, slots := w.to.since(w.from), float64(jobs*seconds)
	s.Late = w.result()
	s.Idle = float64(idle.sent) / idle.took.Seconds()
	s.Sent = (float64(busy.sent) - s.Idle*busy.took.Seconds()) / slots
	if server != nil {
		s.Server = (float64(busy.server) - float64(idle.server)/idle.took.Seconds()*busy.took.Seconds()) / slots
	}
	return s, busy.err
}

// offset returns how far the broker's clock is ahead of this machine's, by the estimate of the
// fleet. It is zero if that is less than the error of the estimate. Slots are due by the
// broker's clock.
func (f *fleet) offset() (time.Duration, error) {
	nodes, err := f.store.Nodes().List(f.ctx)
	if err != nil {
		return 0, err
	}
	for _, n := range nodes {
		if n.Node.Worker && n.Node.ClockOffset.Abs() > n.Node.ClockError {
			return n.Node.ClockOffset, nil
		}
	}
	return 0, nil
}

// counts are the numbers of messages up to an instant (at), or in a period (took).
type counts struct {
	at     time.Time
	took   time.Duration
	sent   uint64 // by the fleet
	server int64  // received by the server
	err    error
}

func (c counts) since(before counts) counts {
	return counts{took: c.at.Sub(before.at), sent: c.sent - before.sent, server: c.server - before.server, err: errors.Join(before.err, c.err)}
}

// watch records when handlers start.
type watch struct {
	jobs, seconds int
	done          chan struct{}

	mu       sync.Mutex
	count    func() counts
	clock    time.Duration          // added to this machine's clock
	late     map[time.Time]Lateness // by instant
	full     int                    // instants at which all jobs were started
	from, to counts                 // at the end of the warm-up, and at the end
}

func newWatch(jobs, seconds int) *watch {
	return &watch{late: map[time.Time]Lateness{}, seconds: seconds, jobs: jobs, done: make(chan struct{})}
}

// begin must be called before the first slot.
func (w *watch) begin(clock time.Duration, count func() counts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock, w.count = clock, count
}

func (w *watch) handle(_ context.Context, run job.Run) error {
	w.note(run.Slot.At, time.Now())
	return nil
}

func (w *watch) note(slot, started time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late[slot] = append(w.late[slot], started.Add(w.clock).Sub(slot))
	if len(w.late[slot]) != w.jobs {
		return
	}
	switch w.full++; w.full {
	case warmUp:
		w.from = w.count()
	case warmUp + w.seconds:
		w.to = w.count()
		close(w.done)
	}
}

// result returns the lateness at the instants after the warm-up at which all jobs were started.
func (w *watch) result() (all Lateness) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var instants []time.Time
	for at, late := range w.late {
		if len(late) == w.jobs {
			instants = append(instants, at)
		}
	}
	slices.SortFunc(instants, time.Time.Compare)
	for _, at := range instants[min(warmUp, len(instants)):] {
		all = append(all, w.late[at]...)
	}
	slices.Sort(all)
	return all
}

// SteadyCeiling does by hand what MeasureSteady measures: one loop publishes at each full second,
// another one claims, completes and acks. The time at which a claim is answered counts as the start
// of a handler. Steady.Idle is zero, because nothing is sent when nothing is due.
func SteadyCeiling(ctx context.Context, connect Connect, name string, replicas, jobs, seconds int) (s Steady, err error) {
	err = byHand(ctx, connect, name, replicas, Shape{}, func(h *hand, queue jetstream.Consumer) (err error) {
		s, err = h.steady(ctx, queue, jobs, seconds)
		return err
	})
	return s, err
}

func (h *hand) steady(ctx context.Context, queue jetstream.Consumer, jobs, seconds int) (s Steady, err error) {
	w := newWatch(jobs, seconds)
	w.begin(0, func() counts { return counts{at: time.Now(), sent: h.js.Conn().Stats().OutMsgs} })
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, working := errgroup.WithContext(working)
	messages, err := queue.Messages(jetstream.PullMaxMessages(jobs))
	if err != nil {
		return s, err
	}
	defer context.AfterFunc(working, messages.Stop)()
	group.Go(func() error { return h.tick(working, jobs) })
	group.Go(func() error { return h.serve(working, messages, group, w) })
	select {
	case <-w.done:
	case <-working.Done():
	}
	stop()
	messages.Stop()
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) || ctx.Err() != nil {
		return s, errors.Join(err, context.Cause(ctx))
	}
	return Steady{Late: w.result(), Sent: float64(w.to.sent-w.from.sent) / float64(jobs*seconds)}, nil
}

// tick publishes messages at each full second until ctx ends.
func (h *hand) tick(ctx context.Context, jobs int) error {
	for {
		at := time.Now().Truncate(time.Second).Add(time.Second)
		select {
		case <-time.After(time.Until(at)):
		case err := <-h.failed:
			return fmt.Errorf("publish by hand: %w", err)
		case <-ctx.Done():
			return nil
		}
		for i := range jobs {
			m := h.publication("report-"+strconv.Itoa(i), fmt.Sprintf("%d.%d", at.Unix(), i))
			if _, err := h.js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
				return err
			}
		}
	}
}

// serve claims, completes and acks each message as it arrives, in a goroutine for each.
func (h *hand) serve(ctx context.Context, messages jetstream.MessagesContext, group *errgroup.Group, w *watch) error {
	claim, end := make([]byte, claimSize), make([]byte, endSize)
	for {
		msg, err := messages.Next()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		group.Go(func() error {
			slot := []jetstream.Msg{msg}
			revisions, err := h.write(ctx, slot, claim, []uint64{0})
			if err != nil {
				return err
			}
			started := time.Now()
			var second, number int64
			if _, err := fmt.Sscanf(msg.Headers().Get("Cronce-Slot"), "report:%d.%d", &second, &number); err != nil {
				return err
			}
			if _, err := h.write(ctx, slot, end, revisions); err != nil {
				return err
			}
			if err := msg.Ack(); err != nil {
				return err
			}
			w.note(time.Unix(second, 0), started)
			return nil
		})
	}
}
