package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

const (
	// shortest is how long a request for messages stays open while slots arrive. The broker
	// delivers messages to a frozen worker for no longer than that.
	shortest = time.Second

	// overlap is how long before the end of a request the next one is made, so that the broker
	// always has an open request of each worker. overdue is how long after its deadline a
	// request is given up if the broker has not ended it.
	overlap = 50 * time.Millisecond
	overdue = time.Second

	// absent is how long to wait before a source that does not exist is opened again.
	absent = time.Minute

	// lanes is how many requests a source may have at once: one that is open, its successor,
	// and two more whose messages are arriving.
	lanes = 4
)

// pull asks all sources for messages until ctx ends and nothing arrives any more. If a source
// fails, pull opens it again. It returns an error only if the settings of the queue on the
// broker differ from this node's (job.ErrMismatch).
func (c *Consumer) pull(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error)
	for _, open := range c.cfg.Sources {
		p := &puller{Consumer: c, open: open, kicked: make(chan struct{}, 1)}
		c.limiter.follow(p)
		defer c.limiter.unfollow(p)
		go func() { ended <- p.run(ctx) }()
	}
	var first error
	for range c.cfg.Sources {
		if err := <-ended; err != nil && first == nil {
			first = err
			stop()
		}
	}
	return first
}

// puller asks one source.
type puller struct {
	*Consumer
	open   Open
	kicked chan struct{} // there may be something to do

	mu       sync.Mutex
	requests [lanes]request
	failed   error     // why the session has to end: a request ended with it
	heard    time.Time // when the last message arrived; shortest ago when the session begins
	worked   bool      // the broker has served or ended a request of this session without an error

	complained bool
}

// request is the state of one lane. It is zero while the lane has no open request.
type request struct {
	stands   bool
	left     int
	deadline time.Time

	// lapsing: less than overlap is left before the deadline. The messages that the request
	// may still bring do not count any more, because the next request replaces it.
	lapsing bool
}

func (p *puller) kick() {
	select {
	case p.kicked <- struct{}{}:
	default:
	}
}

func (p *puller) run(ctx context.Context) error {
	retry := newBackoff()
	for {
		err := p.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, job.ErrMismatch) {
			return err
		}
		if p.worked {
			retry.Reset()
			p.complained = false
		}
		if err != nil {
			p.complain(ctx, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry.NextBackOff()):
		}
	}
}

// ready waits until the queue's slots can be run; false when ctx ends first.
func (p *puller) ready(ctx context.Context) bool {
	select {
	case <-p.cfg.Ready():
		return true
	case <-ctx.Done():
		return false
	}
}

// session works with one source until it fails or ctx ends.
func (p *puller) session(ctx context.Context) error {
	p.mu.Lock()
	p.failed, p.worked, p.heard = nil, false, time.Now().Add(-shortest)
	p.mu.Unlock()
	source, err := p.open(ctx)
	if err != nil {
		return err
	}
	if source == nil {
		select {
		case <-ctx.Done():
		case <-time.After(absent):
		}
		return nil
	}
	if err := source.Listen(lanes, p.message, p.ended); err != nil {
		return err
	}
	defer p.leave(source)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !p.ready(ctx) {
			p.runOut()
			return nil
		}
		next, err := p.ask(source)
		if err != nil {
			return err
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			p.runOut()
			return nil
		case <-p.kicked:
		case <-timer.C:
		}
	}
}

// ask makes the requests that the limiter allows. It returns when to look again, or why
// the source failed.
func (p *puller) ask(source Source) (next time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return 0, p.failed
	}
	now, own := time.Now(), 0
	for i := range p.requests {
		own += p.age(&p.requests[i], now)
	}
	for i := range p.requests {
		r := &p.requests[i]
		if r.stands {
			continue
		}
		n := p.limiter.reserve(own, p.most(now)-own)
		if n == 0 {
			break
		}
		d := p.standing(now)
		*r = request{stands: true, left: n, deadline: now.Add(d)}
		own += n
		if err := source.Ask(i, n, d); err != nil {
			return 0, err
		}
	}
	next = time.Minute
	for _, r := range p.requests {
		switch {
		case r.stands && r.lapsing:
			next = min(next, r.deadline.Add(overdue).Sub(now))
		case r.stands:
			next = min(next, r.deadline.Add(-overlap).Sub(now))
		}
	}
	return max(next, time.Millisecond), nil
}

// age updates a request by its age, and returns how many messages it counts for. p.mu is
// held.
func (p *puller) age(r *request, now time.Time) int {
	if r.stands && now.After(r.deadline.Add(overdue)) {
		p.over(r)
	}
	if r.stands && !r.lapsing && now.After(r.deadline.Add(-overlap)) {
		p.limiter.forget(r.left)
		r.lapsing = true
	}
	if !r.stands || r.lapsing {
		return 0
	}
	return r.left
}

// standing returns how long a request made now stays open: as long as the source has been idle
// so far, but at least shortest and at most a fifth of a lease. It takes off up to a random
// quarter. Without that, requests of one second would stay in step with jobs that run every
// second, and the same worker would get each slot. p.mu is held.
func (p *puller) standing(now time.Time) time.Duration {
	d := min(max(now.Sub(p.heard), shortest), max(p.cfg.Lease/5, shortest))
	return d - rand.N(d/4)
}

// most returns how many messages this source may ask for in all its requests. If there are
// several sources, an idle one leaves most permits to the others. p.mu is held.
func (p *puller) most(now time.Time) int {
	if len(p.cfg.Sources) > 1 && now.Sub(p.heard) >= shortest {
		return max(1, p.cfg.Concurrency/8)
	}
	return maxAhead * p.cfg.Concurrency
}

// over clears a request that has ended. p.mu is held.
func (p *puller) over(r *request) {
	if r.stands && !r.lapsing {
		p.limiter.forget(r.left)
	}
	*r = request{}
}

// message takes in a delivered message, whether its request is still open or not.
func (p *puller) message(lane int, msg jetstream.Msg) {
	p.mu.Lock()
	r := &p.requests[lane]
	asked := r.stands && !r.lapsing
	if r.stands {
		if r.left--; r.left == 0 {
			*r = request{}
		}
	}
	free := !r.stands
	p.heard, p.worked = time.Now(), true
	p.mu.Unlock()
	if asked {
		p.limiter.forget(1)
	}
	p.receive(msg)
	if free {
		p.kick()
	}
}

// ended notes that a request is over.
func (p *puller) ended(lane int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over(&p.requests[lane])
	if err != nil {
		p.failed = err
	} else {
		p.worked = true
	}
	p.kick()
}

// runOut waits until the short requests have ended. To cancel them would be quicker, but a
// message that the broker is just sending would be lost until its redelivery. It does not wait
// for longer requests: they are open only because nothing arrives.
func (p *puller) runOut() {
	for {
		left := p.leftShort(time.Now())
		if left <= 0 {
			return
		}
		select {
		case <-p.kicked:
		case <-time.After(left):
		}
	}
}

// leftShort returns how long to wait until the requests with at most shortest left have ended;
// 0 if there are none.
func (p *puller) leftShort(now time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if left := r.deadline.Sub(now); r.stands && left <= shortest && p.failed == nil {
			longest = max(longest, left+overlap) // until the broker says so
		}
	}
	return longest
}

// leave cancels the open requests. Messages that arrive meanwhile are received as usual.
func (p *puller) leave(source Source) {
	ctx, cancel := context.WithTimeout(context.Background(), shortest)
	defer cancel()
	_ = source.Leave(ctx) // a lost connection has taken them back already
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.requests {
		p.over(&p.requests[i])
	}
}

// complain logs the error as a warning. Further errors are logged at debug level until a
// request has worked again, so that a broker that is away does not fill the log.
func (p *puller) complain(ctx context.Context, err error) {
	level := slog.LevelWarn
	if p.complained {
		level = slog.LevelDebug
	}
	p.complained = true
	p.cfg.Logger.Log(ctx, level, "cannot ask for slots; trying again", "queue", p.cfg.Queue, "error", err)
}

func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}
