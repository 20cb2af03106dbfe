package client

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// BackfillOptions select the slots of a job in a range of the past.
type BackfillOptions struct {
	// The range begins at From, and ends before To. If To is zero, it is the broker's time.
	From, To time.Time

	// Rate limits the messages per second. It is at most MaxRate. A slot has one message, or one
	// for each shard. Zero: DefaultRate.
	Rate int

	// Clip leaves out the slots that are older than the horizon. Without it, Backfill returns a
	// *TooOldError if there are such slots, and publishes nothing.
	Clip bool
}

// The default and the largest value of BackfillOptions.Rate, in messages per second.
const (
	DefaultRate = 100
	MaxRate     = 10_000
)

// Validate returns an error that wraps job.ErrInvalid if an option is invalid. It needs no
// broker.
func (b BackfillOptions) Validate() error {
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

// Backfilled counts the slots of a backfill so far.
type Backfilled struct {
	// From and To are the range.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`

	// Slots is how many slots the job's plans have in the range. Published counts those that were
	// published.
	Slots     int `json:"slots" doc:"how many slots the job has in the range"`
	Published int `json:"published"`

	// Recorded counts the slots with a record, by state. Waiting counts those with a message in
	// the stream. Backfill publishes neither. Folded counts the slots whose messages the stream
	// already had when they were published.
	Recorded map[job.State]int `json:"recorded" doc:"slots that had a record, by state"`
	Waiting  int               `json:"waiting" doc:"slots that waited already"`
	Folded   int               `json:"folded"`

	// TooOld counts the slots older than the horizon, which were left out.
	TooOld int `json:"too_old" doc:"slots that are older than the horizon, and were left out"`
}

// Known returns how many slots had a record.
func (b Backfilled) Known() int {
	var n int
	for _, count := range b.Recorded {
		n += count
	}
	return n
}

// Done returns how many slots need no further work.
func (b Backfilled) Done() int { return b.Known() + b.Waiting + b.TooOld + b.Published + b.Folded }

// TooOldError reports that slots in the range are older than the horizon. Workers would
// record them as expired and not run them. Nothing was published. It matches job.ErrConflict.
type TooOldError struct {
	Slots, TooOld int
	Horizon       time.Duration
}

func (e *TooOldError) Error() string {
	return fmt.Sprintf("%d of %d slots are older than the horizon of %v, and would be recorded as expired instead of run", e.TooOld, e.Slots, e.Horizon)
}

// Is matches job.ErrConflict.
func (e *TooOldError) Is(target error) bool { return target == job.ErrConflict }

// Backfill publishes the slots that the job's past and present plans have in the range, oldest
// first, under their own IDs. It leaves out slots that wait or have a record, in any state. To
// run a skipped slot, use Retry.
//
// Backfill calls progress when it knows which slots need a message, and after each message, one call
// at a time. progress may be nil. If ctx ends or the broker refuses a message, Backfill returns what
// it has done and the error. The same call does the rest.
func (c *Client) Backfill(ctx context.Context, name string, b BackfillOptions, progress func(Backfilled)) (Backfilled, error) {
	if err := codec.ValidateName("job", name); err != nil {
		return Backfilled{}, err
	}
	if err := b.Validate(); err != nil {
		return Backfilled{}, err
	}
	f := filler{Client: c, progress: progress}
	if err := f.plan(ctx, name, b); err != nil {
		return f.sum, err
	}
	if err := f.known(ctx); err != nil {
		return f.sum, err
	}
	err := f.fill(ctx, b.Rate)
	if n := f.sum.Published; n > 0 {
		c.ordered(ctx, "backfill", job.Event{Job: name, Count: n, Time: f.now})
	}
	return f.sum, err
}

// filler is one call of Backfill.
type filler struct {
	*Client
	entry     plans.Entry
	stretches []stretch     // the parts of the range within the horizon
	now       time.Time     // the start, by the broker's clock
	began     time.Duration // the start, by the boot clock: time.Since does not count the time of a suspend
	skip      map[time.Time]bool

	mu       sync.Mutex
	sum      Backfilled
	progress func(Backfilled)
}

// stretch is a part of the range in which one plan of the job was in force.
type stretch struct {
	plans.Stretch
	shards int // messages of each slot; zero: one
}

func (f *filler) plan(ctx context.Context, name string, b BackfillOptions) (err error) {
	if f.now, err = f.cfg.Now(ctx); err != nil {
		return err
	}
	f.cfg.Alive()
	f.began = boot.Now()
	if b.To.IsZero() {
		b.To = f.now
	}
	switch {
	case b.To.After(f.now):
		return fmt.Errorf("%w range: its end %s is in the future: slots that are not due yet need no backfill", job.ErrInvalid, b.To.Format(time.RFC3339))
	case !b.To.After(b.From):
		return fmt.Errorf("%w range: its beginning %s is in the future", job.ErrInvalid, b.From.Format(time.RFC3339))
	}
	if f.entry, _, err = f.cfg.Jobs.Read(ctx, name); err != nil {
		return fmt.Errorf("job %s: %w", name, err)
	}
	f.cfg.Alive()
	f.sum = Backfilled{From: b.From.UTC(), To: b.To.UTC(), Recorded: map[job.State]int{}}
	for _, p := range f.entry.Plans() {
		after, until := plans.Later(b.From.Add(-1), p.From), plans.UpTo(b.To.Add(-1), p.To)
		s, err := job.ParseSchedule(name, p.Plan)
		switch {
		case err != nil && !after.Before(until):
			continue // the plan was not in force in the range
		case err != nil:
			return fmt.Errorf("compute the slots of job %s after %s: %w", name, after.UTC().Format(time.RFC3339), err)
		}
		until = plans.Earlier(until, f.now.Add(-s.Delay()))
		edge := f.now.Add(-f.cfg.Settings.Horizon - 1) // the last instant that is too old
		edge = plans.Later(after, plans.Earlier(until, edge))
		f.sum.TooOld += s.Count(after, edge)
		f.sum.Slots += s.Count(after, until)
		f.stretches = append(f.stretches, stretch{plans.Stretch{Schedule: s, After: edge, Until: until}, p.Plan.Shards})
	}
	if f.sum.Slots == 0 && !f.entry.Job.Plan().Scheduled() {
		return fmt.Errorf("%w backfill: job %s has no schedule whose slots could be filled in: it starts %s", job.ErrInvalid, name, f.entry.Job.Plan().Start())
	}
	if f.sum.TooOld > 0 && !b.Clip {
		return &TooOldError{f.sum.Slots, f.sum.TooOld, f.cfg.Settings.Horizon}
	}
	return nil
}

// known finds the slots to skip, which need no message. It reads the stream before the ledger: a
// slot that is claimed between the two reads then has a record. Both reads are hints. If Backfill
// publishes a message that is not needed, the stream folds it, or a worker drops it because of the
// record.
func (f *filler) known(ctx context.Context) error {
	f.skip = map[time.Time]bool{}
	waits := map[time.Time]int{}
	for w, err := range readable(f.Client, f.cfg.Slots.Waiting(ctx, stream.WaitingFilter{Job: f.entry.Job.Name}), nil) {
		switch {
		case err != nil:
			return err
		case w.Slot.Range || w.Stranded: // no worker runs the slot for this message
		case w.Slot.Shards == 0:
			waits[w.Slot.At] += job.MaxShards // the whole slot
		default:
			waits[w.Slot.At]++
		}
	}
	// A record is written after its slot's instant, but clocks may differ.
	since := f.sum.From.Add(-time.Minute)
	for e, err := range readable(f.Client, f.cfg.Ledger.List(ctx, kv.ListFilter{Job: f.entry.Job.Name, Since: since}), nil) {
		if err != nil {
			return err
		}
		if e.Slot.Shards == 0 && f.wants(e.Slot, 0) {
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
	f.count(func(*Backfilled) {}) // reports the progress
	return nil
}

// wants reports whether the backfill covers the slot and does not skip it yet. If messages is not
// zero, it also requires that the slot needs no more messages than that.
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

// inFlight bounds the messages without an answer.
const inFlight = 256

func (f *filler) fill(ctx context.Context, rate int) error {
	rate = cmp.Or(rate, DefaultRate)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	// After a failure, fill publishes no further message, but waits for those in flight.
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
				f.count(func(sum *Backfilled) { sum.TooOld++ }) // it became too old after the backfill began
				continue
			}
			sent := sending{left: len(shardsOf(slot, s.shards))}
			for _, shard := range shardsOf(slot, s.shards) {
				if !ticked(going, tick.C) {
					break
				}
				m := core.Message{
					Slot: shard, JobRevision: f.entry.Revision, Node: f.cfg.Operator,
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

// ticked waits for the next tick. It returns false if ctx has ended.
func ticked(ctx context.Context, tick <-chan time.Time) bool {
	select {
	case <-tick:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// age returns the age of a slot by the broker's clock.
func (f *filler) age(at time.Time) time.Duration { return f.now.Add(boot.Now() - f.began).Sub(at) }

// sending is a slot whose messages are being published.
type sending struct {
	left  int
	fresh bool // a message was not folded
}

func (f *filler) send(ctx context.Context, m core.Message, s *sending) error {
	folded, err := f.cfg.Slots.Put(ctx, f.entry.Job.WithDefaults().Queue, m, f.entry.Job.Payload)
	if err != nil {
		return err
	}
	f.count(func(sum *Backfilled) {
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

// shardsOf returns the shards of a slot, or the slot itself if it is not split. Each gets a message.
func shardsOf(slot job.Slot, shards int) []job.Slot {
	if shards < 2 {
		return []job.Slot{slot}
	}
	all := make([]job.Slot, shards)
	for i := range all {
		all[i] = slot.WithShard(i+1, shards)
	}
	return all
}

func (f *filler) count(change func(*Backfilled)) {
	f.cfg.Alive()
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.sum)
	if f.progress != nil {
		f.progress(f.sum)
	}
}
