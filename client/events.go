package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Event is one thing that happened. Its JSON is the line of "cronce watch".
type Event struct {
	job.Event

	// Sequence is the event's position among the events that are kept. It is zero for kinds that
	// are not kept. It grows, unless the broker has lost events that it had kept: it was created
	// anew, or restored from an older copy.
	Sequence uint64 `json:"-"`
}

// EventFilter selects events. Its zero value selects all that happen from now on.
type EventFilter struct {
	// Job selects the events of one job. Empty: all.
	Job string

	// Kinds selects the events of these kinds. Empty: all.
	Kinds []job.EventKind

	// After selects the kept events with a larger sequence, and all that happen from now on. With
	// 0 these are all kept events. If the broker has not reached the sequence, it was created anew
	// or restored, and After counts as 0. Nil: only the events that happen from now on.
	After *uint64
}

// eventBuffer bounds the live events that wait for the caller of Events. While it is full, further
// ones are dropped. Events of kept kinds are then read from the broker.
const eventBuffer = 4096

const (
	// When the live copy of an event of a kept kind arrives, Events reads the stored events. If the
	// event is not stored yet, Events reads them again after twice firstReplay, and then after pauses
	// that double up to maxReplay. maxReplay is also how often Events reads them to find events whose
	// live copy was lost.
	firstReplay = 20 * time.Millisecond
	maxReplay   = 10 * time.Second
)

// Events iterates over what happens, as it happens, until ctx ends or the caller stops. The broker
// keeps the events of most kinds as long as the ledger keeps records (see job.EventKind). None of them
// is missing, even after a reconnect, and a later call can continue After the last Sequence. Events of
// the other kinds can be lost. An event of a kept kind may come after a later one of another kind.
//
// If the broker was created anew, or restored from an older copy, Events goes on with the events that
// have been kept since. It cannot detect a restore once the broker has as many events as before.
//
// An event that cannot be read yields an error that wraps job.ErrInvalid or job.ErrVersion,
// and the iteration goes on. Any other error ends it. If ctx ends, it ends without an error.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := codec.ValidateJobFilter(f.Job); err != nil {
			yield(Event{}, err)
			return
		}
		if slices.Contains(f.Kinds, "") {
			yield(Event{}, fmt.Errorf("%w kind of event: must not be empty", job.ErrInvalid))
			return
		}
		s := eventStream{Client: c, filter: f, live: make(chan job.Event, eventBuffer), yield: yield}
		if err := s.run(ctx); err != nil && ctx.Err() == nil {
			yield(Event{}, err)
		}
	}
}

// eventStream is one call of Events.
type eventStream struct {
	*Client
	filter EventFilter
	live   chan job.Event
	yield  func(Event, error) bool
	at     wire.Cursor // after the last kept event that was read
	ended  bool        // the caller has ended its loop
}

func (s *eventStream) run(ctx context.Context) error {
	stop, err := s.cfg.News.Follow(s.filter.Job, func(e job.Event) { core.TrySend(s.live, e) })
	if err != nil {
		return err
	}
	defer stop()
	after := s.filter.After
	if after == nil {
		last, err := s.cfg.News.LastEvent(ctx)
		if err != nil {
			return err
		}
		after = &last
	}
	s.at = wire.CursorAfter(*after)
	for pause := firstReplay; ; {
		reconnected := s.cfg.News.Reconnected()
		found, err := s.replay(ctx)
		if err != nil || s.ended {
			return err
		}
		if pause = min(2*pause, maxReplay); found {
			pause = maxReplay
		}
		if s.follow(ctx, reconnected, pause) {
			pause = firstReplay
		}
		if s.ended || ctx.Err() != nil {
			return nil
		}
	}
}

// replay yields the kept events that are new. It reports whether there are any.
func (s *eventStream) replay(ctx context.Context) (found bool, err error) {
	err = s.cfg.News.EventsAfter(ctx, s.filter.Job, &s.at, func(e job.Event, sequence uint64, err error) bool {
		s.cfg.Alive()
		found = true
		if err != nil || s.selects(e) {
			s.ended = !s.yield(Event{e, sequence}, err)
		}
		return !s.ended
	})
	return found, err
}

func (s *eventStream) selects(e job.Event) bool {
	return len(s.filter.Kinds) == 0 || slices.Contains(s.filter.Kinds, e.Kind)
}

// follow yields live events of the kinds that are not kept, for at most the duration most. It returns
// true early if replay should read stored events: a live event of a kept kind has arrived, or the
// connection was restored.
func (s *eventStream) follow(ctx context.Context, reconnected <-chan struct{}, most time.Duration) (replay bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		select {
		case e := <-s.live:
			switch {
			case slices.Contains(exchange.KeptKinds(), e.Kind):
				return true
			case s.selects(e):
				if s.ended = !s.yield(Event{e, 0}, nil); s.ended {
					return false
				}
			}
		case <-reconnected:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// LastSequence returns the sequence of the newest event that the broker keeps. Use it as
// EventFilter.After to receive all later events, even if Events is called some time after.
func (c *Client) LastSequence(ctx context.Context) (uint64, error) { return c.cfg.News.LastEvent(ctx) }

// Orders iterates over the orders on a job that were carried out at since or later, oldest first. An
// empty name selects all jobs. Event.Node is the operator, and Event.Order the order. Orders are kept
// for the ledger's retention.
// An event that cannot be read yields an error that wraps job.ErrInvalid or job.ErrVersion, and the
// iteration goes on. Any other error ends it.
func (c *Client) Orders(ctx context.Context, name string, since time.Time) iter.Seq2[job.Event, error] {
	return c.cfg.Fleet.Events(ctx, kv.EventFilter{Job: name, Kind: job.EventOrdered, Since: since})
}

// errNotOrdered is the error of methods of a Run without a client: see Run.Wait.
var errNotOrdered = fmt.Errorf("%w run: it was not ordered", job.ErrInvalid)

// Wait waits until the run has its outcome, and returns it: see Client.Wait. If the Run is the zero
// Run, or one of TriggerMany with an Err, the error wraps job.ErrInvalid.
func (r Run) Wait(ctx context.Context) (SlotDetails, error) {
	if r.client == nil {
		return SlotDetails{}, errNotOrdered
	}
	ordered := nameOnly(r.Slot)
	ordered.State, ordered.Queue, ordered.Due = r.State, r.Queue, r.Due.UTC()
	return r.client.wait(ctx, ordered, r.Slot, nil)
}

// Wait waits until a slot has its outcome, and returns the slot. It also waits for a slot that is
// planned and not due yet, and for one that comes after the slots of other jobs. It continues while
// the broker cannot be reached. If ctx ends first, the error wraps its cause, and the slot is as it was
// last seen. The slot's state is empty if nothing is stored about it so far, or if this login may not
// read what waits.
//
// Wait follows the events of the slot's job, so that it returns as soon as the outcome is
// recorded. Events can be lost. So it also reads the record after it has subscribed, after each
// reconnect, and every few seconds.
//
// If there is no such slot and none is to come, the error wraps job.ErrNotFound. It is a *SlotError
// if the job exists.
func (c *Client) Wait(ctx context.Context, id string) (SlotDetails, error) {
	s, err := job.ParseSlotID(id)
	if err != nil {
		return SlotDetails{}, err
	}
	return c.wait(ctx, nameOnly(s), s, c.expected)
}

// nameOnly returns the details of a slot of which only the name is known.
func nameOnly(s job.Slot) SlotDetails {
	return SlotDetails{SlotRow: SlotRow{ID: s.ID(), Job: s.Job, Slot: s.At}}
}

const (
	// firstReread is the time after which wait reads the record again if no event has arrived. The
	// time doubles up to maxReread. maxReread is shorter than the time after which a command gives
	// up on a broker that does not answer.
	firstReread = time.Second
	maxReread   = 10 * time.Second
)

// wait waits for the outcome of s. last is what is known of it. If s has no record at first, wait
// calls absent, which returns an error if s will have none. If absent returns a next function, wait
// calls that one after each further read that finds no record. absent may be nil.
func (c *Client) wait(ctx context.Context, last SlotDetails, s job.Slot, absent expectation) (SlotDetails, error) {
	ended, stop, err := c.waiters.add(c.cfg.News, s)
	if err != nil {
		return last, err
	}
	defer stop()
	for reread := firstReread; ; reread = min(2*reread, maxReread) {
		reconnected := c.cfg.News.Reconnected()
		r, revision, err := c.record(ctx, s)
		switch {
		case ctx.Err() != nil:
			return last, waitError(ctx, s)
		case err != nil:
			return last, err
		case r != nil:
			if last = recordedDetails(*r, revision); last.State.Final() {
				return last, nil
			}
		case absent != nil:
			var found SlotDetails
			found, absent, err = absent(ctx, s)
			switch {
			case ctx.Err() != nil:
				return last, waitError(ctx, s)
			case err != nil:
				return found, err
			}
			last = found
		}
		again := time.NewTimer(reread - rand.N(reread/5)) // so that many callers do not read at the same time
		select {
		case <-ended:
			reread = firstReread / 2
		case <-reconnected:
			reread = firstReread / 2
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

func waitError(ctx context.Context, s job.Slot) error {
	return fmt.Errorf("wait for slot %q: %w", s.ID(), context.Cause(ctx))
}

// waiters holds the callers that wait for outcomes. Each job with such callers has one
// subscription to its events.
type waiters struct {
	mu   sync.Mutex
	jobs map[string]*jobWaiters
}

type jobWaiters struct {
	unsubscribe func()
	byID        map[string]map[chan struct{}]bool
}

// add returns a channel that receives a value after each event with an outcome of slot s. Call
// stop to unsubscribe.
func (w *waiters) add(news attach.News, s job.Slot) (ended chan struct{}, stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.jobs[s.Job]
	if of == nil {
		of = &jobWaiters{byID: map[string]map[chan struct{}]bool{}}
		if of.unsubscribe, err = news.Follow(s.Job, func(e job.Event) {
			if job.State(e.Kind).Final() {
				w.notify(of, e.ID)
			}
		}); err != nil {
			return nil, nil, err
		}
		if w.jobs == nil {
			w.jobs = map[string]*jobWaiters{}
		}
		w.jobs[s.Job] = of
	}
	id := s.ID()
	if of.byID[id] == nil {
		of.byID[id] = map[chan struct{}]bool{}
	}
	ended = make(chan struct{}, 1)
	of.byID[id][ended] = true
	return ended, func() { w.remove(of, s, ended) }, nil
}

func (w *waiters) remove(of *jobWaiters, s job.Slot, ended chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := s.ID()
	if delete(of.byID[id], ended); len(of.byID[id]) == 0 {
		delete(of.byID, id)
	}
	if len(of.byID) == 0 {
		of.unsubscribe()
		delete(w.jobs, s.Job)
	}
}

func (w *waiters) notify(of *jobWaiters, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ended := range of.byID[id] {
		core.TrySend(ended, struct{}{}) // if the channel is full, the waiter reads the record anyway
	}
}

// Payload returns the run's payload, as its first order set it. If a caller repeats an order with
// the same key, it can compare this payload with its own to find out whether both orders mean the
// same run. The payload is nil if the run has none. If a run is due and has not begun, a login of the
// role caller may not read its payload: the error then wraps job.ErrDenied.
func (r Run) Payload(ctx context.Context) (json.RawMessage, error) {
	if r.client == nil {
		return nil, errNotOrdered
	}
	var payload []byte
	switch record, _, message, err := r.client.find(ctx, r.Slot); {
	case err != nil:
		return nil, fmt.Errorf("payload of %q: %w", r.ID(), err)
	case record != nil:
		payload = record.Payload
	default:
		payload = message.Payload
	}
	if len(payload) == 0 {
		return nil, nil
	}
	return payload, nil
}
