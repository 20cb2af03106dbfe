package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

const (
	// minRequest is how long a request for messages stays open while slots arrive. The broker
	// delivers messages to a frozen worker for no longer than that.
	minRequest = time.Second

	// renewBefore is how long before the end of a request the next one is made, so that the
	// broker always has an open request from each worker. If the broker has not ended a request
	// within overdue after the deadline, the worker counts the request as ended.
	renewBefore = 50 * time.Millisecond
	overdue     = time.Second

	// absentRetry is how long to wait before a source that does not exist is opened again.
	absentRetry = time.Minute

	// While no slots arrive, a request stays open for at most lease/idleShare.
	idleShare = 5

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
		p := &puller{Consumer: c, openSource: open, kicked: make(chan struct{}, 1)}
		c.limiter.register(p)
		defer c.limiter.unregister(p)
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

// puller requests messages from one source.
type puller struct {
	*Consumer
	openSource Open
	kicked     chan struct{} // signals that there may be something to do

	// arriving counts the messages that are just being received: their request does not count
	// them any more, and the limiter may not count them yet.
	arriving atomic.Int32

	mu          sync.Mutex
	requests    [lanes]request
	failed      error     // the error with which a request ended; it ends the session too
	lastMessage time.Time // when the last message arrived; a new session counts as idle for minRequest
	served      bool      // the broker has served or ended a request of this session without an error
	lastError   error     // why the last session ended

	complained bool
}

// request is the state of one lane. It is zero while the lane has no open request. left is how
// many messages the request may still bring.
type request struct {
	open     bool
	left     int
	deadline time.Time

	// lapsing: less than renewBefore is left before the deadline. The messages that the request
	// may still bring do not count any more, because the next request replaces it.
	lapsing bool
}

func (p *puller) kick() { core.TrySend(p.kicked, struct{}{}) }

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
		if p.sessionEnded(err) {
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

// sessionEnded notes why a session ended, and reports whether the broker served it.
func (p *puller) sessionEnded(err error) (served bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastError = err
	return p.served
}

// denied returns why the server has refused to let this process ask the source for messages; nil if it may,
// or has not asked yet.
func (p *puller) denied() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var refused *jetstream.APIError
	if p.served || !errors.Is(p.lastError, job.ErrDenied) && !errors.As(p.lastError, &refused) {
		return nil
	}
	return p.lastError
}

// ready waits until the queue's slots can run. It returns false if ctx ends first.
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
	p.failed, p.served, p.lastMessage = nil, false, time.Now().Add(-minRequest)
	p.mu.Unlock()
	source, err := p.openSource(ctx)
	if err != nil {
		return err
	}
	if source == nil {
		select {
		case <-ctx.Done():
		case <-time.After(absentRetry):
		}
		return nil
	}
	if err := source.Listen(lanes, p.message, p.requestEnded); err != nil {
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

// ask makes the requests that the limiter allows. It returns how long to wait before the next
// call, or why the source failed.
func (p *puller) ask(source Source) (next time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return 0, p.failed
	}
	now, own := time.Now(), int(p.arriving.Load())
	for i := range p.requests {
		own += p.age(&p.requests[i], now)
	}
	for i := range p.requests {
		r := &p.requests[i]
		if r.open {
			continue
		}
		n := p.limiter.reserve(own, p.most(now)-own)
		if n == 0 {
			break
		}
		d := p.requestDuration(now)
		*r = request{open: true, left: n, deadline: now.Add(d)}
		own += n
		if err := source.Ask(i, n, d); err != nil {
			return 0, err
		}
	}
	next = time.Minute
	for _, r := range p.requests {
		switch {
		case r.open && r.lapsing:
			next = min(next, r.deadline.Add(overdue).Sub(now))
		case r.open:
			next = min(next, r.deadline.Add(-renewBefore).Sub(now))
		}
	}
	return max(next, time.Millisecond), nil
}

// age clears a request that is overdue, and marks a request near its deadline as lapsing. It
// returns how many messages the request may still bring, and 0 if it is lapsing. p.mu is held.
func (p *puller) age(r *request, now time.Time) int {
	if r.open && now.After(r.deadline.Add(overdue)) {
		p.closeRequest(r)
	}
	if r.open && !r.lapsing && now.After(r.deadline.Add(-renewBefore)) {
		p.limiter.forget(r.left)
		r.lapsing = true
	}
	if !r.open || r.lapsing {
		return 0
	}
	return r.left
}

// requestDuration returns how long a request made now stays open: as long as the source has been idle
// so far, but at least minRequest and at most a fifth of a lease. It subtracts a random part, up
// to a quarter. Without that, requests of one second would stay in step with jobs that run every
// second, and the same worker would get each slot. p.mu is held.
func (p *puller) requestDuration(now time.Time) time.Duration {
	d := min(max(now.Sub(p.lastMessage), minRequest), max(p.cfg.Lease/idleShare, minRequest))
	return d - rand.N(d/4)
}

// most returns how many messages this source may ask for in all its requests. If there are
// several sources, an idle one leaves most permits to the others. p.mu is held.
func (p *puller) most(now time.Time) int {
	if len(p.cfg.Sources) > 1 && now.Sub(p.lastMessage) >= minRequest {
		return max(1, p.cfg.Concurrency/8)
	}
	return maxAhead * p.cfg.Concurrency
}

// closeRequest clears a request that has ended. p.mu is held.
func (p *puller) closeRequest(r *request) {
	if r.open && !r.lapsing {
		p.limiter.forget(r.left)
	}
	*r = request{}
}

// message takes in a delivered message, whether its request is still open or not.
func (p *puller) message(lane int, msg jetstream.Msg) {
	p.mu.Lock()
	r := &p.requests[lane]
	asked := r.open && !r.lapsing
	p.arriving.Add(1)
	if r.open {
		if r.left--; r.left == 0 {
			*r = request{}
		}
	}
	free := !r.open
	p.lastMessage, p.served = time.Now(), true
	p.mu.Unlock()
	p.Consumer.receive(msg, asked)
	p.arriving.Add(-1)
	if free {
		p.kick()
	}
}

// requestEnded notes that a request is over.
func (p *puller) requestEnded(lane int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeRequest(&p.requests[lane])
	if err != nil {
		p.failed = err
	} else {
		p.served = true
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

// leftShort returns how long to wait for the requests that end within minRequest; 0 if there are
// none.
func (p *puller) leftShort(now time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if left := r.deadline.Sub(now); r.open && left <= minRequest && p.failed == nil {
			longest = max(longest, left+renewBefore) // then the broker has reported the end
		}
	}
	return longest
}

// leave cancels the open requests. Messages that arrive meanwhile are received as usual.
func (p *puller) leave(source Source) {
	ctx, cancel := context.WithTimeout(context.Background(), minRequest)
	defer cancel()
	_ = source.Leave(ctx) // if the connection is lost, the requests have ended already
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.requests {
		p.closeRequest(&p.requests[i])
	}
}

// complain logs the error as a warning. Until a request succeeds, it logs further errors at
// debug level, so that an unreachable broker does not fill the log.
func (p *puller) complain(ctx context.Context, err error) {
	level := slog.LevelWarn
	if p.complained {
		level = slog.LevelDebug
	}
	p.complained = true
	p.cfg.Logger.Log(ctx, level, "cannot ask for slots; trying again", "queue", p.cfg.Queue, "error", err)
}

// newBackoff returns a backoff that never gives up.
func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
}

// Source delivers the messages of one durable consumer of the queue. stream.Source
// satisfies it.
type Source interface {
	// Listen opens lanes. Each lane has at most one open request. Listen is called once.
	//
	// The source calls message for each message that arrives on a lane, even after the request
	// has ended. It calls ended when a request ends before all its messages have arrived. err
	// is not nil if a further request would fail too. message and ended do not block.
	Listen(lanes int, message func(lane int, m jetstream.Msg), ended func(lane int, err error)) error

	// Ask requests up to n messages on a lane for as long as d, and does not wait.
	Ask(lane, n int, d time.Duration) error

	// Leave cancels all requests. It returns after message was called for everything that the
	// broker had delivered before.
	Leave(ctx context.Context) error
}

// Open returns a source, or nil if the source does not exist now; then the consumer calls Open
// again after a while. The consumer also calls it again when a source fails, since the durable
// consumer may have been deleted. It does not call it again after job.ErrMismatch.
type Open func(ctx context.Context) (Source, error)
