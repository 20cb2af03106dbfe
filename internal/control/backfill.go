package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Backfill asks for the slots of a job in a range of the past that have no
// outcome.
type Backfill struct {
	Job string

	// From is the first instant that may be a slot, To the end: before it. Zero:
	// the broker's now.
	From, To time.Time

	// Rate bounds the messages, per second: one a slot, or one a shard. Zero: DefaultRate; at most
	// MaxRate.
	Rate int

	// Clip leaves out the slots that are older than the horizon. Else they are a
	// *TooOldError, and nothing is published.
	Clip bool
}

// The bounds of Backfill.Rate.
const (
	DefaultRate = 100
	MaxRate     = 10_000
)

// Validate refuses, with an error that wraps job.ErrInvalid, what can be known to
// be wrong without a broker.
func (b Backfill) Validate() error {
	if err := codec.ValidateName("job", b.Job); err != nil {
		return err
	}
	switch {
	case b.From.IsZero():
		return fmt.Errorf("%w range: it has no beginning", job.ErrInvalid)
	case !b.To.IsZero() && !b.To.After(b.From):
		return fmt.Errorf("%w range: its end %s is not after its beginning %s", job.ErrInvalid, b.To.Format(time.RFC3339), b.From.Format(time.RFC3339))
	case b.Rate < 0 || b.Rate > MaxRate:
		return fmt.Errorf("%w rate %d/s: want 1/s to %d/s", job.ErrInvalid, b.Rate, MaxRate)
	}
	return nil
}

// Backfilled counts what became of the slots in the range, so far.
type Backfilled struct {
	// From and To are the range.
	From, To time.Time

	// Slots is how many slots the job's plans, as they were, have in the range.
	Slots int

	// Recorded counts those with a record, by its state, and Waiting those with a
	// message in the stream: both are left as they are.
	Recorded map[job.State]int
	Waiting  int

	// TooOld are beyond the horizon: they were left out.
	TooOld int

	// Published were stored for workers. Folded turned out to be in the stream
	// already.
	Published, Folded int
}

// Known is how many slots had a record.
func (b Backfilled) Known() int {
	var n int
	for _, count := range b.Recorded {
		n += count
	}
	return n
}

// Done is how many slots are dealt with.
func (b Backfilled) Done() int { return b.Known() + b.Waiting + b.TooOld + b.Published + b.Folded }

// TooOldError says that slots in the range are older than the horizon: workers
// would record them as expired, and not run them. Nothing was published.
type TooOldError struct {
	Slots, TooOld int
	Horizon       time.Duration
}

func (e *TooOldError) Error() string {
	return fmt.Sprintf("%d of %d slots are older than the horizon of %v, and would be recorded as expired instead of run", e.TooOld, e.Slots, e.Horizon)
}

// Backfill publishes the slots that the job's plans, past and present, have in
// the range, oldest first, under their own IDs: what has an outcome keeps it, and
// what runs or waits does so once. Slots with a record are left out, whatever it
// says; one that was skipped, say, is for an operator to reopen.
//
// progress is told of each step, one call at a time. It may be nil. When ctx ends
// or the broker refuses, what was done is returned with the error, and the same
// again does the rest.
func (c *Control) Backfill(ctx context.Context, b Backfill, progress func(Backfilled)) (Backfilled, error) {
	if err := b.Validate(); err != nil {
		return Backfilled{}, err
	}
	f := filler{Control: c, began: time.Now(), progress: progress}
	if err := f.plan(ctx, b); err != nil {
		return f.sum, err
	}
	if err := f.known(ctx); err != nil {
		return f.sum, err
	}
	return f.sum, f.fill(ctx, b.Rate)
}

// filler is one backfill under way.
type filler struct {
	*Control
	entry      core.Entry
	stretches  []stretch // what is in the range and within the horizon
	now, began time.Time // the broker's, and ours at that time
	skip       map[time.Time]bool

	mu       sync.Mutex
	sum      Backfilled
	progress func(Backfilled)
}

// stretch is a part of the job's timeline, and how many messages each slot in it has.
type stretch struct {
	core.Stretch
	shards int // zero: one for the whole
}

func (f *filler) plan(ctx context.Context, b Backfill) (err error) {
	if f.now, err = f.cfg.Now(ctx); err != nil {
		return err
	}
	f.cfg.Alive()
	f.began = time.Now()
	if b.To.IsZero() {
		b.To = f.now
	}
	switch {
	case b.To.After(f.now):
		return fmt.Errorf("%w range: its end %s is in the future, and what is not due yet comes by itself", job.ErrInvalid, b.To.Format(time.RFC3339))
	case !b.To.After(b.From):
		return fmt.Errorf("%w range: its beginning %s is in the future", job.ErrInvalid, b.From.Format(time.RFC3339))
	}
	if f.entry, _, err = f.cfg.Jobs.Read(ctx, b.Job); err != nil {
		return fmt.Errorf("job %s: %w", b.Job, err)
	}
	f.cfg.Alive()
	f.sum = Backfilled{From: b.From.UTC(), To: b.To.UTC(), Recorded: map[job.State]int{}}
	for _, p := range f.entry.Plans() {
		s, err := job.ParseSchedule(b.Job, p.Plan)
		if err != nil {
			return err
		}
		after, until := later(b.From.Add(-1), p.From), b.To.Add(-1)
		if due := f.now.Add(-s.Delay()); due.Before(until) {
			until = due
		}
		if !p.To.IsZero() && p.To.Before(until) {
			until = p.To
		}
		edge := f.now.Add(-f.cfg.Settings.Horizon - 1) // the last instant that is too old
		if until.Before(edge) {
			edge = until
		}
		edge = later(after, edge)
		f.sum.TooOld += s.Count(after, edge)
		f.sum.Slots += s.Count(after, until)
		f.stretches = append(f.stretches, stretch{core.Stretch{Schedule: s, After: edge, Until: until}, p.Plan.Shards})
	}
	if f.sum.Slots == 0 && f.entry.Job.Schedule == "" {
		return fmt.Errorf("job %s has no schedule whose slots could be filled in: it starts %s", b.Job, f.entry.Job.Plan().Start())
	}
	if f.sum.TooOld > 0 && !b.Clip {
		return &TooOldError{f.sum.Slots, f.sum.TooOld, f.cfg.Settings.Horizon}
	}
	return nil
}

// known finds the slots that need no message. The stream is read first: what is
// claimed and gone from it in between then has a record. Both are hints: a message
// too many is folded, or ended by the record.
func (f *filler) known(ctx context.Context) error {
	f.skip = map[time.Time]bool{}
	waits := map[time.Time]int{}
	for w, err := range f.cfg.Slots.Waiting(ctx, kv.WaitingFilter{Job: f.entry.Job.Name}) {
		f.cfg.Alive()
		switch {
		case err != nil && !core.IsUnreadable(err):
			return err
		case err == nil && w.Slot.Shards == 0:
			waits[w.Slot.At] += job.MaxShards // the whole, however many they are
		case err == nil:
			waits[w.Slot.At]++
		}
	}
	// A record is written after its slot's instant, by whatever clock.
	since := f.sum.From.Add(-time.Minute)
	for e, err := range f.cfg.Ledger.List(ctx, kv.ListFilter{Job: f.entry.Job.Name, Since: since}) {
		f.cfg.Alive()
		switch {
		case err != nil && !core.IsUnreadable(err):
			return err
		case err == nil && e.Slot.Shards == 0 && f.wants(e.Slot, 0):
			f.sum.Recorded[e.State]++
			f.skip[e.Slot.At] = true
		}
	}
	for at, messages := range waits {
		if f.wants(job.NewSlot(f.entry.Job.Name, at), messages) {
			f.sum.Waiting++
			f.skip[at] = true
		}
	}
	f.tell(func(*Backfilled) {})
	return nil
}

// wants reports whether the slot is one that would be published, in no more than
// so many messages (zero: however many).
func (f *filler) wants(slot job.Slot, messages int) bool {
	if slot.Token != "" || slot.Range || f.skip[slot.At] {
		return false
	}
	for _, s := range f.stretches {
		if slot.At.After(s.After) && !slot.At.After(s.Until) && s.Schedule.Includes(slot.At) {
			return messages == 0 || messages >= s.shards
		}
	}
	return false
}

// inFlight bounds the publications that are not answered yet.
const inFlight = 256

func (f *filler) fill(ctx context.Context, rate int) error {
	if rate == 0 {
		rate = DefaultRate
	}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	// The first failure stops what has not begun; what has is seen to its end.
	going, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	group.SetLimit(inFlight)
	for _, s := range f.stretches {
		for at := range s.Schedule.Between(s.After, s.Until) {
			if f.skip[at] {
				continue
			}
			slot := job.NewSlot(f.entry.Job.Name, at)
			if f.age(at) > f.cfg.Settings.Horizon {
				f.tell(func(sum *Backfilled) { sum.TooOld++ }) // by now
				continue
			}
			sent := sending{left: len(parts(slot, s.shards))}
			for _, part := range parts(slot, s.shards) {
				if !ticked(going, tick.C) {
					break
				}
				m := core.Message{
					Slot: part, JobRevision: f.entry.Revision, Node: f.cfg.Who,
					Due: at.Add(s.Schedule.Delay()), Backfill: true,
				}
				group.Go(func() error {
					err := f.send(ctx, m, &sent)
					if err != nil {
						stop()
					}
					return err
				})
			}
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if f.sum.Done() == f.sum.Slots {
		return nil
	}
	return context.Cause(ctx)
}

// ticked waits for the next tick, and reports false when ctx ended first.
func ticked(ctx context.Context, tick <-chan time.Time) bool {
	select {
	case <-tick:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// age of a slot, by the broker's clock.
func (f *filler) age(at time.Time) time.Duration { return f.now.Add(time.Since(f.began)).Sub(at) }

// sending is a slot on its way, in one message or several.
type sending struct {
	left  int
	fresh bool // one of them was not folded
}

func (f *filler) send(ctx context.Context, m core.Message, s *sending) error {
	folded, err := f.publish(ctx, f.entry.Job.WithDefaults().Queue, m, f.entry.Job.Payload)
	if err != nil {
		return err
	}
	f.tell(func(sum *Backfilled) {
		s.left--
		s.fresh = s.fresh || !folded
		switch {
		case s.left > 0:
		case s.fresh:
			sum.Published++
		default:
			sum.Folded++
		}
	})
	return nil
}

// parts are the slots that a slot of a plan with so many shards is published as.
func parts(slot job.Slot, shards int) []job.Slot {
	if shards < 2 {
		return []job.Slot{slot}
	}
	all := make([]job.Slot, shards)
	for i := range all {
		all[i] = slot.Part(i+1, shards)
	}
	return all
}

func (f *filler) tell(count func(*Backfilled)) {
	f.cfg.Alive()
	f.mu.Lock()
	defer f.mu.Unlock()
	count(&f.sum)
	if f.progress != nil {
		f.progress(f.sum)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
