package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// storedRun holds what is stored about a triggered run: its job, and its record, timer or message.
type storedRun struct {
	entry   plans.Entry
	record  *job.Record
	timer   *stream.Timer       // of the first shard
	waiting *stream.WaitingSlot // a message that waits for a worker: of the first shard
	begun   *stream.WaitingSlot // one of another shard
	all     bool                // young messages were looked for, too
	now     time.Time           // the broker's; zero if nothing depends on it
}

// note notes a message that waits for a worker, of a run whose job has the queue. A later order may have
// moved the run to that queue.
func (s *storedRun) note(w *stream.WaitingSlot, queue string) {
	switch {
	case w.Slot.Shards > 0 && w.Slot.Shard > 1:
		s.begun = w
	case s.waiting == nil || s.waiting.Queue != queue:
		s.waiting = w
	}
}

// editedLately reports whether the stream may have folded a run that was ordered before the job was
// edited.
func (c *Client) editedLately(s storedRun) bool {
	return s.entry.Time.After(s.now.Add(-c.cfg.Settings.WithDefaults().Duplicates - foldMargin))
}

// readRun reads what is stored about a run. A run without a key is not stored yet. all is that of
// waitingRuns.
func (c *Client) readRun(ctx context.Context, slot job.Slot, o TriggerOptions, all bool) (s storedRun, err error) {
	keyed := o.Key != ""
	group, reading := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		s.entry, _, err = c.cfg.Jobs.Read(reading, slot.Job)
		if err != nil {
			err = fmt.Errorf("job %s: %w", slot.Job, err)
		}
		return err
	})
	if keyed {
		group.Go(func() (err error) {
			s.record, _, err = c.record(reading, slot)
			return err
		})
	}
	if keyed || !o.At.IsZero() {
		group.Go(func() (err error) {
			s.now, err = c.cfg.Now(reading)
			return err
		})
	}
	err = group.Wait()
	c.cfg.Alive()
	if !keyed || err != nil || s.record != nil {
		return s, err
	}
	shards := firstShards(slot, s.entry)
	for _, first := range shards {
		if s.timer, _, err = c.timer(ctx, first); s.timer != nil || err != nil {
			return s, err
		}
	}
	later := o.At.After(s.now)
	queue := s.entry.Job.WithDefaults().Queue
	s.all = later || all || len(shards) > 1 && c.editedLately(s) // the stream folds no shard of another number
	err = c.waitingRuns(ctx, slot.Job, s.now, s.all, func(w *stream.WaitingSlot) bool {
		if w.Slot.Whole() == slot {
			s.note(w, queue)
		}
		return s.waiting == nil || s.waiting.Queue != queue
	})
	if (later || s.begun != nil) && s.waiting == nil && err == nil {
		// The run may have started since its record was read. A timer would start it again when
		// its record has been forgotten. And the message of its first shard may be acked.
		s.record, _, err = c.record(ctx, slot)
	}
	return s, err
}

// mostWaiting bounds how many waiting messages an order looks at, in each stream.
const mostWaiting = 10_000

// waitingRuns calls found with the messages of a job's runs that wait for a worker, oldest first,
// until found returns false. Unless all is true, it leaves out the messages in the stream of slots that
// are so young that the stream would fold a second publication of their run. Nearly all messages are
// that young, so it usually reads few. If the login may not list the messages, waitingRuns finds none.
func (c *Client) waitingRuns(ctx context.Context, name string, now time.Time, all bool, found func(*stream.WaitingSlot) bool) error {
	if c.cfg.NoList {
		return nil
	}
	published := stream.WaitingFilter{Job: name}
	if !all {
		published.Before = now.Add(-c.cfg.Settings.WithDefaults().Duplicates + foldMargin)
	}
	for _, waiting := range []iter.Seq2[stream.WaitingSlot, error]{
		c.cfg.Slots.Waiting(ctx, published),
		c.cfg.Timers.Waiting(ctx, stream.WaitingFilter{Job: name, Fired: true}), // of any age: a fired timer has no message ID
	} {
		n := 0
		for w, err := range waiting {
			c.cfg.Alive()
			if n++; n > mostWaiting {
				break
			}
			switch {
			case exchange.IsUnreadable(err):
			case errors.Is(err, job.ErrDenied):
				return nil
			case err != nil:
				return err
			case !found(&w):
				return nil
			}
		}
	}
	return nil
}

// foldMargin is how long before the end of the duplicate window an order begins to look for a
// waiting message of its run: the message may leave the window before the order is stored.
const foldMargin = 15 * time.Second

// firstShards returns the first shard of a run for each number of shards that the job has or had. A
// run keeps the number with which it was ordered, and its timers have it in their names.
func firstShards(run job.Slot, e plans.Entry) (first []job.Slot) {
	for _, p := range slices.Backward(e.Plans()) {
		if shard := shardsOf(run, p.Plan.Shards)[0]; !slices.Contains(first, shard) {
			first = append(first, shard)
		}
	}
	return first
}

// timer returns the timer of one shard of the run, or nil.
func (c *Client) timer(ctx context.Context, shard job.Slot) (*stream.Timer, uint64, error) {
	t, revision, err := c.cfg.Timers.Read(ctx, shard)
	if errors.Is(err, job.ErrNotFound) {
		return nil, 0, nil
	}
	return &t, revision, err
}
