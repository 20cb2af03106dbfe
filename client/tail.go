package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/output"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// TailPiece is what Tail yields: new output of an attempt, or, with an empty Output, a new attempt,
// Error, Problem or Outcome.
type TailPiece struct {
	// Attempt and Node are those of the attempt that wrote the output.
	Attempt int    `json:"attempt"`
	Node    string `json:"node"`

	// Output is what the attempt has written next. Skipped is how many bytes before it are not
	// known: the handler writes more than 64 KiB a second, or events were lost.
	Output  string `json:"output,omitempty"`
	Skipped int64  `json:"skipped,omitempty"`

	// Error is why the attempt ended, if the slot is retried. The error of the last attempt is in
	// Outcome.
	Error string `json:"error,omitempty"`

	// Problem is why the output of the attempt cannot be followed now. Tail yields its recorded
	// output when the attempt has ended.
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

	// tailBuffer bounds the events that are queued while the caller handles a piece. Further events
	// are lost.
	tailBuffer = 1024
)

// Tail iterates over the output of a slot's attempts, as they write it, until the slot has its
// outcome. The last piece has the outcome. Tail begins with what the running attempt has written so
// far, or with the recorded output of a slot that has ended. It goes on through retries and takeovers,
// and waits for a slot that does not run yet, or is still to come, as Wait does. If ctx ends first, the
// error wraps its cause, or job.ErrUnknown.
//
// A node sends output only while a client follows it, at most 64 KiB a second of an attempt. Events
// can be lost: see TailPiece.Skipped. When an attempt has ended, Tail reads the rest of its output
// from the record, so the last lines are not missing.
//
// If there is no such slot and none is to come, the error wraps job.ErrNotFound. If the slot is
// split, it has no output of its own, and the error is a *SlotError that wraps job.ErrConflict: tail
// one of its shards.
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

// errStopped means that the caller has ended its loop.
var errStopped = errors.New("the caller has stopped")

// tail is one call of Tail.
type tail struct {
	*Client
	slot   job.Slot
	yield  func(TailPiece, error) bool
	events chan job.Event

	attempt        job.Attempt // the attempt that is followed
	fence          uint64      // identifies the attempt
	to             int64       // how many bytes of its output are known
	problemYielded bool        // its Problem was yielded
	errorYielded   bool        // its Error was yielded
	ended          bool        // an event reported its end
}

func (t *tail) run(ctx context.Context, id string) (d SlotDetails, err error) {
	if t.slot, err = job.ParseSlotID(id); err != nil {
		return d, err
	}
	stop, err := t.cfg.News.Follow(t.slot.Job, func(e job.Event) {
		if e.ID == t.slot.ID() {
			core.TrySend(t.events, e) // if it is dropped, the record still has the end of the output
		}
	})
	if err != nil {
		return d, err
	}
	defer stop()
	for absent := expectation(t.expected); ; {
		r, revision, err := t.record(ctx, t.slot)
		switch {
		case err != nil:
			return d, err
		case r == nil && absent != nil:
			if _, absent, err = absent(ctx, t.slot); err != nil {
				return d, err
			}
		case r != nil && r.Shards > 0:
			return d, &SlotError{t.slot, r.State, fmt.Sprintf("it is split: tail one of its shards, like %s", t.slot.WithShard(1, r.Shards))}
		case r != nil:
			if err := t.handleRecord(ctx, *r, revision); err != nil {
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

// handleRecord yields what is new in a record.
func (t *tail) handleRecord(ctx context.Context, r job.Record, revision uint64) error {
	if err := t.finish(ctx, r); err != nil {
		return err
	}
	if r.State == job.Running {
		return t.askOutput(ctx, r, revision)
	}
	fence := r.Fence(0)
	if fence == t.fence || len(r.Attempts) == 0 || r.Error == "" && r.Output == "" && r.State == job.Retrying {
		return nil // the attempt is known, or the worker released the slot before the handler started
	}
	t.follow(r.Attempts[len(r.Attempts)-1], fence) // the attempt ended before Tail could follow it
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
	if !t.ended { // output that the node sent before it wrote the record may still arrive
		if err := t.wait(ctx, tailLast); err != nil {
			return err
		}
	}
	recorded, why := r.Attempts[i].Output, r.Attempts[i].Error
	if last {
		recorded, why = r.Output, r.Error
	}
	for _, p := range output.Rest(recorded, t.to) {
		if err := t.yieldOutput(p); err != nil {
			return err
		}
	}
	if why == "" || t.errorYielded || last && r.State.Final() {
		return nil
	}
	t.errorYielded = true
	return t.yieldPiece(TailPiece{Error: why})
}

func (t *tail) follow(a job.Attempt, fence uint64) {
	t.attempt, t.fence, t.to, t.problemYielded, t.errorYielded, t.ended = a, fence, 0, false, false, false
}

// askOutput asks the owner of a running slot for its output so far, and to go on sending it.
func (t *tail) askOutput(ctx context.Context, r job.Record, fence uint64) error {
	live, err := t.running(ctx, r, fence, true)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, job.ErrDenied):
		return err
	case err != nil && fence == t.fence && t.problemYielded:
		return nil
	case err != nil:
		if fence != t.fence {
			t.follow(r.Attempts[len(r.Attempts)-1], fence)
		}
		t.problemYielded = true
		return t.yieldPiece(TailPiece{Problem: err})
	case live.Attempt == 0: // the handler has returned meanwhile
		return nil
	case fence == t.fence && (!t.problemYielded || t.to > 0):
		t.problemYielded = false
		return nil // events bring the output since then; their positions show what was missed
	}
	t.follow(r.Attempts[len(r.Attempts)-1], fence)
	t.to = live.Written
	return t.yieldPiece(TailPiece{Output: live.Output})
}

// wait yields the output that arrives, until an event reports the end of the attempt, but at most
// for d.
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
			// An event without output marks a gap. The next output, or the record, shows its size.
			if e.Kind == job.EventOutput && e.Fence == t.fence && e.Output != "" {
				if err := t.yieldOutput(output.Piece{From: e.From, To: e.To, Text: e.Output}); err != nil {
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

// yieldOutput yields the part of a piece of output that was not yielded yet.
func (t *tail) yieldOutput(p output.Piece) error {
	if p.To <= t.to {
		return nil
	}
	if known := t.to - p.From; known > 0 {
		p.Text = output.Valid(p.Text[min(known, int64(len(p.Text))):])
	}
	skipped := max(0, p.From-t.to)
	t.to = p.To
	return t.yieldPiece(TailPiece{Output: p.Text, Skipped: skipped})
}

// yieldPiece yields a piece about the attempt.
func (t *tail) yieldPiece(p TailPiece) error {
	p.Attempt, p.Node = t.attempt.Number, t.attempt.Node
	if !t.yield(p, nil) {
		return errStopped
	}
	return nil
}

// publishGrace is how long after it was due a slot without a record and a message may still be
// published.
const publishGrace = 2 * time.Minute

// Expect returns what is known of a slot, like Slot, also if the slot is planned and not published
// yet: then the State of the details is job.Pending. If the slot does not exist and will not exist,
// the error wraps job.ErrNotFound. Wait begins in this way.
func (c *Client) Expect(ctx context.Context, id string) (SlotDetails, error) {
	s, err := job.ParseSlotID(id)
	if err != nil {
		return SlotDetails{}, err
	}
	r, revision, err := c.record(ctx, s)
	if err != nil {
		return SlotDetails{}, err
	}
	if r != nil {
		return recordedDetails(*r, revision), nil
	}
	d, _, err := c.expected(ctx, s)
	if err == nil && d.State == "" {
		d.State = job.Pending
	}
	return d, err
}

// expectation returns what is known of a slot without a record. If the slot will never have one, the
// error wraps job.ErrNotFound. If that can still turn out, next checks it again.
type expectation func(ctx context.Context, s job.Slot) (d SlotDetails, next expectation, err error)

// expected is the first expectation of each slot: it searches the streams and the plan.
func (c *Client) expected(ctx context.Context, s job.Slot) (SlotDetails, expectation, error) {
	return c.expectedBy(ctx, s, nil)
}

// expectedBy is expected for a slot that slots of the jobs by come after, in one chain. Several
// operators together can write a chain that ends in itself.
func (c *Client) expectedBy(ctx context.Context, s job.Slot, by []string) (SlotDetails, expectation, error) {
	if c.cfg.NoList {
		return nameOnly(s), nil, nil
	}
	d, err := c.Slot(ctx, s.ID())
	if errors.Is(err, job.ErrDenied) {
		return nameOnly(s), nil, nil // this login may not list the waiting slots
	}
	if !errors.Is(err, job.ErrNotFound) {
		return d, nil, err
	}
	e, err := c.read(ctx, s.Job)
	if err != nil {
		return SlotDetails{}, nil, err
	}
	d = nameOnly(s)
	d.Queue = e.Job.WithDefaults().Queue
	none := func(format string, args ...any) (SlotDetails, expectation, error) {
		return SlotDetails{}, nil, &SlotError{Slot: s, Why: "there is no such slot: " + fmt.Sprintf(format, args...)}
	}
	now, err := c.cfg.Now(ctx)
	switch {
	case err != nil:
		return d, nil, err
	case s.Range:
		return none("no range of missed slots begins at this instant")
	case s.Shards > 0 && s.Shards != e.Job.Shards:
		return none("job %s does not split its slots into %d shards", s.Job, s.Shards)
	case slices.Contains(by, s.Job):
		return none("job %s comes after itself", s.Job)
	case len(e.Job.After) > 0:
		succeeded, err := c.predecessors(ctx, s, e.Job.After, func(before job.Slot) error {
			_, _, err := c.expectedBy(ctx, before, append(by, s.Job))
			return err
		})
		if err == nil && !succeeded.IsZero() && !now.Before(succeeded.Add(publishGrace)) {
			return none("the last of the jobs that it comes after succeeded at %s, and it has no record", succeeded.UTC().Format(time.RFC3339))
		}
		return d, c.followed, err
	case s.Token != "":
		return none("no run of job %s with the key %s was ordered, or its outcome is not kept any longer", s.Job, s.Token)
	}
	plan, err := job.ParseSchedule(s.Job, e.Job.Plan())
	if err != nil {
		return d, nil, err
	}
	d.Due = s.At.Add(plan.Delay())
	switch {
	case !e.Job.Plan().Scheduled():
		return none("job %s has no schedule: it starts %s", s.Job, e.Job.Plan().Start())
	case !plan.Includes(s.At):
		return none("it is not in the plan of job %s: schedule %q, timezone %s", s.Job, e.Job.Schedule, plan.Location())
	case !now.Before(d.Due.Add(publishGrace)):
		return none("it was due at %s, and has no record", d.Due.UTC().Format(time.RFC3339))
	}
	return d, c.planned(d), nil
}

// planned is the further expectation of a slot that d describes. If an edit has taken it out of the plan, it
// searches again: the slot may wait in the stream. That the slot is late says nothing: no producer may run.
func (c *Client) planned(d SlotDetails) (next expectation) {
	next = func(ctx context.Context, s job.Slot) (SlotDetails, expectation, error) {
		e, err := c.read(ctx, s.Job)
		if errors.Is(err, job.ErrNotFound) || err == nil && !isPlanned(e, s) {
			return c.expected(ctx, s)
		}
		return d, next, nil
	}
	return next
}

// isPlanned reports whether the schedule in force at the slot's instant includes it.
func isPlanned(e plans.Entry, s job.Slot) bool {
	p, _ := e.PlanAt(s.At)
	schedule, err := job.ParseSchedule(s.Job, p.Plan)
	return err == nil && schedule.Includes(s.At)
}

// followed is the further expectation of a slot that comes after others. It reads their records only. If
// these say that the slot will not come, or an edit has made it one that comes after none, it searches again:
// the slot may wait in the stream.
func (c *Client) followed(ctx context.Context, s job.Slot) (SlotDetails, expectation, error) {
	e, err := c.followedBy(ctx, s, nil)
	if errors.Is(err, job.ErrNotFound) || err == nil && len(e.Job.After) == 0 {
		return c.expected(ctx, s)
	}
	d := nameOnly(s)
	d.Queue = e.Job.WithDefaults().Queue
	return d, c.followed, err
}

// followedBy is to followed what expectedBy is to expected. It returns the definition of the job.
func (c *Client) followedBy(ctx context.Context, s job.Slot, by []string) (e plans.Entry, err error) {
	if e, err = c.read(ctx, s.Job); err != nil || slices.Contains(by, s.Job) {
		return e, err
	}
	_, err = c.predecessors(ctx, s, e.Job.After, func(before job.Slot) error {
		_, err := c.followedBy(ctx, before, append(by, s.Job))
		return err
	})
	return e, err
}

// predecessors reads the slots that s comes after. If all have succeeded, it returns when the last
// one did. If one ended in another way, the error is a *SlotError. For one without a record it calls
// absent.
func (c *Client) predecessors(ctx context.Context, s job.Slot, names []string, absent func(job.Slot) error) (succeeded time.Time, err error) {
	all := true
	for _, name := range names {
		before := s.Whole()
		before.Job = name
		r, _, err := c.record(ctx, before)
		if r == nil && err == nil {
			err = absent(before)
			if errors.Is(err, job.ErrNotFound) {
				err = &SlotError{Slot: s, Why: fmt.Sprintf("there is no such slot: it comes after %s: %v", before, err)}
			}
		}
		switch {
		case err != nil:
			return time.Time{}, err
		case r != nil && r.State == job.Succeeded:
			if r.Finished.After(succeeded) {
				succeeded = r.Finished
			}
			continue
		case r != nil && r.State.Final():
			return time.Time{}, &SlotError{Slot: s, Why: fmt.Sprintf("there is no such slot: it comes after %s, which ended %s%s", before, r.State, core.Because(r.Error))}
		}
		all = false
	}
	if !all {
		succeeded = time.Time{}
	}
	return succeeded, nil
}

// RunningAttempt is what a running attempt has reported so far. The ledger has none of it yet.
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
