package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/output"
	"github.com/cronce-io/cronce/job"
)

// TailPiece is something new about a slot that is tailed. Output is empty if only the attempt,
// Error, Problem or Outcome is new.
type TailPiece struct {
	// Attempt and Node are those of the attempt that wrote the output.
	Attempt int    `json:"attempt"`
	Node    string `json:"node"`

	// Output is what the attempt has written next. Skipped is how many bytes before it are not
	// known: the handler writes more than 64 KiB a second, or events were lost.
	Output  string `json:"output,omitempty"`
	Skipped int64  `json:"skipped,omitempty"`

	// Error is why the attempt ended, if the slot is tried again. That of the last attempt is in
	// the Outcome.
	Error string `json:"error,omitempty"`

	// Problem is why the output of the attempt cannot be followed now. Its recorded output comes
	// when the attempt has ended.
	Problem error `json:"-"`

	// Outcome is the slot with its outcome. It is set only in the last piece, which has no output.
	Outcome *SlotDetails `json:"-"`
}

const (
	// tailEvery is how often Tail asks the node to go on sending, and reads the record. It is
	// well below exchange.FollowFor.
	tailEvery = 3 * time.Second

	// tailLast is how long Tail waits for the last output after it has read the outcome.
	tailLast = 300 * time.Millisecond

	// tailBuffer bounds the events that are queued while piece runs. Further events are lost.
	tailBuffer = 1024
)

// Tail iterates over what the attempts of a slot write, as they write it, until the slot has its
// outcome, which the last piece has. It begins with what the running attempt has written so far, or
// with the recorded output of a slot that has ended. It goes on through retries and takeovers, and
// waits for a slot that does not run yet. If ctx ends first, the error wraps its cause.
//
// Nothing is sent or stored for a slot without a follower. A node sends at most 64 KiB a second of
// an attempt, and events can be lost: see TailPiece.Skipped. When an attempt has ended, Tail reads
// from the record what was not sent of its end, so the last lines are not missing.
//
// If there is no such slot, the error is a *SlotError that wraps job.ErrNotFound. If the slot is
// split, it has no output of its own, and the error is a *SlotError that wraps job.ErrConflict: tail
// one of its parts.
func (c *Client) Tail(ctx context.Context, id string) iter.Seq2[TailPiece, error] {
	return func(yield func(TailPiece, error) bool) {
		t := &tail{Client: c, yield: yield, events: make(chan job.Event, tailBuffer)}
		switch d, err := t.run(ctx, id); {
		case errors.Is(err, errStopped):
		case err != nil:
			yield(TailPiece{}, err)
		default:
			yield(TailPiece{Attempt: d.Attempt, Node: d.Node, Outcome: &d}, nil)
		}
	}
}

// errStopped reports that the caller has ended its loop.
var errStopped = errors.New("the caller has stopped")

// tail is one call of Tail.
type tail struct {
	*Client
	slot   job.Slot
	yield  func(TailPiece, error) bool
	events chan job.Event

	// attempt is the one that is followed, and fence identifies it. The first to bytes of its output
	// are known. troubled is true if the Problem of this attempt was yielded, explained if its Error
	// was, and ended if an event reported its end.
	attempt   job.Attempt
	fence     uint64
	to        int64
	troubled  bool
	explained bool
	ended     bool
}

func (t *tail) run(ctx context.Context, id string) (d SlotDetails, err error) {
	if t.slot, err = job.ParseSlotID(id); err != nil {
		return d, err
	}
	stop, err := t.cfg.News.Follow(t.slot.Job, t.heard)
	if err != nil {
		return d, err
	}
	defer stop()
	for first := true; ; first = false {
		r, revision, err := t.record(ctx, t.slot)
		switch {
		case err != nil:
			return d, err
		case r == nil && first:
			if _, err = t.Slot(ctx, id); err != nil {
				return d, err
			}
		case r != nil && r.Shards > 0:
			return d, &SlotError{t.slot, r.State, fmt.Sprintf("it is split: tail one of its parts, like %s", t.slot.Part(1, r.Shards))}
		case r != nil:
			if err := t.look(ctx, *r, revision); err != nil {
				return d, err
			}
			if r.State.Final() {
				return recordedDetails(*r, revision), nil
			}
		}
		if err := t.wait(ctx, tailEvery); err != nil {
			return d, err
		}
	}
}

// heard takes an event of the slot's job.
func (t *tail) heard(e job.Event) {
	if e.ID == t.slot.ID() {
		offer(t.events, e) // the record has the end of the output
	}
}

// look yields what is new in a record.
func (t *tail) look(ctx context.Context, r job.Record, revision uint64) error {
	if err := t.finish(ctx, r); err != nil {
		return err
	}
	if r.State == job.Running {
		return t.ask(ctx, r, revision)
	}
	fence := r.Fence(0)
	if fence == t.fence || len(r.Attempts) == 0 || r.Error == "" && r.Output == "" && r.State == job.Retrying {
		return nil // it is known, or the worker released the slot before the handler started
	}
	t.follow(r.Attempts[len(r.Attempts)-1], fence) // it was not seen while it ran
	return t.finish(ctx, r)
}

// finish yields what the record has of the end of the attempt that is followed, if that attempt has
// ended.
func (t *tail) finish(ctx context.Context, r job.Record) error {
	i := slices.IndexFunc(r.Attempts, func(a job.Attempt) bool { return t.fence > 0 && a.Fence == t.fence })
	last := i == len(r.Attempts)-1
	if i < 0 || last && r.State == job.Running {
		return nil
	}
	if !t.ended { // what the node sent before it wrote the record may still be on its way
		if err := t.wait(ctx, tailLast); err != nil {
			return err
		}
	}
	recorded, why := r.Attempts[i].Output, r.Attempts[i].Error
	if last {
		recorded, why = r.Output, r.Error
	}
	for _, p := range output.Rest(recorded, t.to) {
		if err := t.pass(p); err != nil {
			return err
		}
	}
	if why == "" || t.explained || last && r.State.Final() {
		return nil
	}
	t.explained = true
	return t.tell(TailPiece{Error: why})
}

func (t *tail) follow(a job.Attempt, fence uint64) {
	t.attempt, t.fence, t.to, t.troubled, t.explained, t.ended = a, fence, 0, false, false, false
}

// ask requests the output of a running slot from its owner, and asks the owner to keep sending
// it.
func (t *tail) ask(ctx context.Context, r job.Record, fence uint64) error {
	live, err := t.running(ctx, r, fence, true)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, job.ErrDenied):
		return err
	case err != nil && fence == t.fence && t.troubled:
		return nil
	case err != nil:
		if fence != t.fence {
			t.follow(r.Attempts[len(r.Attempts)-1], fence)
		}
		t.troubled = true
		return t.tell(TailPiece{Problem: err})
	case live.Attempt == 0: // it has returned meanwhile
		return nil
	case fence == t.fence && !t.troubled:
		return nil // what was written since is on its way
	case fence == t.fence && t.to > 0:
		t.troubled = false
		return nil // the next event shows what was missed
	}
	t.follow(r.Attempts[len(r.Attempts)-1], fence)
	t.to = live.Written
	return t.tell(TailPiece{Output: live.Output})
}

// wait passes on the output that arrives, until the attempt has ended, or for d.
func (t *tail) wait(ctx context.Context, d time.Duration) error {
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		select {
		case e := <-t.events:
			if state := job.State(e.Kind); state.Final() || state == job.Retrying {
				t.ended = true
				return nil
			}
			// An event without output marks a gap. The next output shows it, or the record.
			if e.Kind == job.EventOutput && e.Fence == t.fence && e.Output != "" {
				if err := t.pass(output.Piece{From: e.From, To: e.To, Text: e.Output}); err != nil {
					return err
				}
			}
		case <-over.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pass yields a piece of output without what is known already.
func (t *tail) pass(p output.Piece) error {
	if p.To <= t.to {
		return nil
	}
	if known := t.to - p.From; known > 0 {
		p.Text = output.Valid(p.Text[min(known, int64(len(p.Text))):])
	}
	skipped := max(0, p.From-t.to)
	t.to = p.To
	return t.tell(TailPiece{Output: p.Text, Skipped: skipped})
}

// tell yields a piece about the attempt.
func (t *tail) tell(p TailPiece) error {
	p.Attempt, p.Node = t.attempt.Number, t.attempt.Node
	if !t.yield(p, nil) {
		return errStopped
	}
	return nil
}

// Event is one thing that happened. Its JSON is the line of "cronce watch".
type Event struct {
	job.Event

	// Sequence is the event's place among the events that are kept. It is zero for kinds that
	// are not kept.
	Sequence uint64 `json:"-"`
}

// EventFilter selects events. Its zero value selects all that happen from now on.
type EventFilter struct {
	// Job selects the events of one job. Empty: all.
	Job string

	// Kinds selects the events of these kinds. Empty: all.
	Kinds []job.EventKind

	// After begins with the events that are kept and have a larger sequence: 0 for all that
	// are kept. Nil: with those that happen from now on.
	After *uint64
}

// eventBuffer bounds the events that wait for the caller of Events. While it is full, events
// that are not kept are dropped.
const eventBuffer = 4096

const (
	// If a live event of a kept kind is not stored yet, Events looks for the stored one again
	// after firstReplay. The pause doubles up to mostReplay, which is also how often Events looks
	// for stored events whose live copy was lost.
	firstReplay = 20 * time.Millisecond
	mostReplay  = 10 * time.Second
)

// Events iterates over what happens, as it happens, until ctx ends or the caller stops. The
// events of the exceptional kinds are kept as long as the ledger keeps records: none of them
// is missing, over reconnects as well, and a later call continues After the last Sequence. The
// delivery of all other kinds is not guaranteed. Events of kept kinds may come after later
// ones of other kinds.
//
// An event that cannot be read yields an error that wraps job.ErrInvalid or job.ErrVersion,
// and the iteration goes on. Any other error ends it. The end of ctx is no error.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if f.Job != "" {
			if err := codec.ValidateName("job", f.Job); err != nil {
				yield(Event{}, err)
				return
			}
		}
		if slices.Contains(f.Kinds, "") {
			yield(Event{}, fmt.Errorf("%w kind of event: must not be empty", job.ErrInvalid))
			return
		}
		live := make(chan job.Event, eventBuffer)
		stop, err := c.cfg.News.Follow(f.Job, func(e job.Event) { offer(live, e) })
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer stop()
		s := eventStream{Client: c, filter: f, live: live, yield: yield}
		if err := s.run(ctx); err != nil && ctx.Err() == nil {
			yield(Event{}, err)
		}
	}
}

// eventStream is a running Events.
type eventStream struct {
	*Client
	filter EventFilter
	live   chan job.Event
	yield  func(Event, error) bool
	last   uint64 // the sequence of the last kept event that was looked at
	ended  bool   // the caller has stopped
}

func (s *eventStream) run(ctx context.Context) (err error) {
	if s.filter.After != nil {
		s.last = *s.filter.After
	} else if s.last, err = s.cfg.News.LastEvent(ctx); err != nil {
		return err
	}
	for pause := firstReplay; ; {
		reconnected, before := s.cfg.News.Reconnected(), s.last
		if err := s.replay(ctx); err != nil || s.ended {
			return err
		}
		if pause = min(2*pause, mostReplay); s.last > before {
			pause = mostReplay
		}
		told, err := s.follow(ctx, reconnected, pause)
		if err != nil || s.ended || ctx.Err() != nil {
			return err
		}
		if told {
			pause = firstReplay
		}
	}
}

// replay yields the kept events that are new.
func (s *eventStream) replay(ctx context.Context) error {
	return s.cfg.News.EventsAfter(ctx, s.filter.Job, s.last, func(e job.Event, sequence uint64, err error) bool {
		s.cfg.Alive()
		s.last = sequence
		if err != nil || s.takes(e) {
			s.ended = !s.yield(Event{e, sequence}, err)
		}
		return !s.ended
	})
}

func (s *eventStream) takes(e job.Event) bool {
	return len(s.filter.Kinds) == 0 || slices.Contains(s.filter.Kinds, e.Kind)
}

// follow yields live events of the kinds that are not kept. It returns when replay must look for
// kept ones: after most, or with told set, because a live event of a kept kind has arrived or the
// connection was restored.
func (s *eventStream) follow(ctx context.Context, reconnected <-chan struct{}, most time.Duration) (told bool, err error) {
	again := time.NewTimer(most)
	defer again.Stop()
	for {
		select {
		case e := <-s.live:
			switch {
			case slices.Contains(exchange.Exceptional(), e.Kind):
				return true, nil
			case s.takes(e):
				if s.ended = !s.yield(Event{e, 0}, nil); s.ended {
					return false, nil
				}
			}
		case <-reconnected:
			return true, nil
		case <-again.C:
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
}
