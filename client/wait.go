package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/job"
)

// errNotOrdered is the error for a Run that Trigger did not return.
var errNotOrdered = fmt.Errorf("%w run: it was not ordered", job.ErrInvalid)

// Wait waits until the run has its outcome, and returns it: see Client.Wait. A Run whose
// order failed, like one of TriggerMany with an Err, gives job.ErrInvalid.
func (r Run) Wait(ctx context.Context) (SlotDetails, error) {
	if r.client == nil {
		return SlotDetails{}, errNotOrdered
	}
	ordered := nameOnly(r.Slot)
	ordered.State, ordered.Queue, ordered.Due = r.State, r.Queue, r.Due.UTC()
	return r.client.wait(ctx, ordered, r.Slot, nil)
}

// Wait waits until a slot has its outcome, and returns the slot. It also waits for a slot
// that is planned and not due yet. It goes on while the broker is away, until ctx ends; the
// error then wraps the cause of ctx, and the slot is as it was last seen. Its state is empty if
// nothing of it is stored so far, or if this login may not read what waits.
//
// Wait follows the events of the slot's job, so that it returns as soon as the outcome is
// recorded. Events can be lost. So it also reads the record after it has subscribed, after each
// reconnect, and every few seconds.
//
// If there is no such slot, the error is a *SlotError that wraps job.ErrNotFound.
func (c *Client) Wait(ctx context.Context, id string) (SlotDetails, error) {
	s, err := job.ParseSlotID(id)
	if err != nil {
		return SlotDetails{}, err
	}
	return c.wait(ctx, nameOnly(s), s, c.expected)
}

// nameOnly is a slot of which only the name is known.
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
// calls absent, which returns an error if s will have none. absent may be nil.
func (c *Client) wait(ctx context.Context, last SlotDetails, s job.Slot, absent func(context.Context, job.Slot) (SlotDetails, error)) (SlotDetails, error) {
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
			found, err := absent(ctx, s)
			switch {
			case ctx.Err() != nil:
				return last, waitError(ctx, s)
			case err != nil:
				return found, err
			}
			last = found
		}
		absent = nil
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

// publishGrace is how long after its instant a slot without a record and a message may still
// be published.
const publishGrace = 2 * time.Minute

// expected returns what is known of s. The error says that s has no message, and will have none.
func (c *Client) expected(ctx context.Context, s job.Slot) (SlotDetails, error) {
	if c.cfg.NoList {
		return nameOnly(s), nil
	}
	d, err := c.Slot(ctx, s.ID())
	if errors.Is(err, job.ErrDenied) {
		return nameOnly(s), nil // this login may not list the waiting slots
	}
	if !errors.Is(err, job.ErrNotFound) || s.Token != "" || s.Range || s.Shards > 0 {
		return d, err
	}
	e, readErr := c.read(ctx, s.Job)
	if readErr != nil {
		return d, readErr
	}
	now, nowErr := c.cfg.Now(ctx)
	if nowErr != nil {
		return d, nowErr
	}
	plan, planErr := job.ParseSchedule(s.Job, e.Job.Plan())
	if planErr != nil {
		return d, planErr
	}
	d = nameOnly(s)
	d.Queue = e.Job.WithDefaults().Queue
	if len(e.Job.After) > 0 {
		return d, nil
	}
	if d.Due = s.At.Add(plan.Delay()); plan.Includes(s.At) && now.Before(d.Due.Add(publishGrace)) {
		return d, nil
	}
	return SlotDetails{}, err
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
		select {
		case ended <- struct{}{}:
		default: // the waiter has not read the record since the previous event
		}
	}
}

// Payload returns the payload that the run has, which is that of its first order. If a caller
// repeats an order with the same key, it can compare this payload with its own to find out whether
// both orders mean the same run. The payload is nil if the run has none, or if the run is split into
// shards and has begun. If a run is due and has not begun, a login of the role caller may not read
// its payload: the error then wraps job.ErrDenied.
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

// RunningAttempt is what the attempt of a slot that runs now has reported so far. Nothing of it is
// stored.
type RunningAttempt struct {
	// Attempt and Fence are those of the attempt. They are zero if the slot does not run.
	Attempt int    `json:"attempt,omitempty"`
	Fence   uint64 `json:"fence,omitempty"`

	// Progress is the newest progress that the handler has reported. Nil: none.
	Progress *job.Progress `json:"progress,omitempty"`

	// Output is the beginning and the end of what the attempt has written, as it would be
	// recorded now. Written counts all of it, in bytes.
	Output  string `json:"output,omitempty"`
	Written int64  `json:"written,omitempty"`
}

// Running asks the node that runs a slot what the attempt has reported so far: its progress and its
// output. It returns the zero RunningAttempt if the slot waits or has ended. If there is no such
// slot, the error is a *SlotError that wraps job.ErrNotFound. If the node does not answer within a
// second, the error wraps job.ErrUnknown: the node is dead, or its version does not know this
// request.
func (c *Client) Running(ctx context.Context, id string) (RunningAttempt, error) {
	s, err := job.ParseSlotID(id)
	if err != nil {
		return RunningAttempt{}, err
	}
	r, revision, err := c.record(ctx, s)
	if err != nil {
		return RunningAttempt{}, err
	}
	if r == nil {
		_, err := c.Slot(ctx, id)
		return RunningAttempt{}, err
	}
	return c.running(ctx, *r, revision, false)
}

// running asks the owner of a record. With follow, the owner sends the output from here on as
// events.
func (c *Client) running(ctx context.Context, r job.Record, revision uint64, follow bool) (RunningAttempt, error) {
	if r.State != job.Running || r.Shards > 0 {
		return RunningAttempt{}, nil
	}
	a, err := c.cfg.Fleet.AskOutput(ctx, r.Node, r.Slot, follow)
	c.cfg.Alive()
	switch {
	case errors.Is(err, job.ErrInvalid):
		return RunningAttempt{}, fmt.Errorf("%w: %w", job.ErrUnknown, err) // an answer that cannot be decoded counts as none
	case err != nil:
		return RunningAttempt{}, err
	case !a.Runs || a.Fence != revision:
		return RunningAttempt{}, nil // the handler has returned meanwhile
	}
	return RunningAttempt{Attempt: a.Attempt, Fence: a.Fence, Progress: a.Progress, Output: a.Output, Written: a.To}, nil
}
