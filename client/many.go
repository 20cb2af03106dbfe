package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// TriggerResult is the result of one of the orders of TriggerMany.
type TriggerResult struct {
	// Run is the run. If Err is not nil, only its Slot is set, whose Token is the key.
	Run

	// Err is set if the run may not exist: see Trigger.
	Err error
}

// manyInFlight bounds the orders of TriggerMany that are not answered yet.
const manyInFlight = 512

// TriggerMany orders many runs of one job, each as Trigger does, and returns a result for
// each order in the given order. The orders are sent without waiting for each other. A
// failure of one does not keep the others from being ordered. The returned error is the first
// one in the results.
//
// If an order is invalid, or if there is no such job, nothing is ordered and there are no
// results. If ctx ends, the results say which runs exist. Repeat the call with the same keys
// to order the rest: set each Key for that.
//
// To find out which runs exist, Trigger reads records and timers at the leaders, but TriggerMany
// reads them at any replica of the broker. So New may be true for a run that another program ordered
// a moment ago.
func (c *Client) TriggerMany(ctx context.Context, name string, orders []TriggerOptions) ([]TriggerResult, error) {
	if err := codec.ValidateName("job", name); err != nil {
		return nil, err
	}
	for i, o := range orders {
		if err := o.Validate(); err != nil {
			return nil, fmt.Errorf("order %d of %d: %w", i+1, len(orders), err)
		}
	}
	if len(orders) == 0 {
		return nil, nil
	}
	results := make([]TriggerResult, len(orders))
	var named []job.Slot
	for i, o := range orders {
		results[i].Slot = o.slot(name)
		if o.Key != "" {
			named = append(named, results[i].Slot)
		}
	}
	stored, err := c.readRuns(ctx, name, orders, named)
	if err != nil {
		return nil, err
	}
	var group errgroup.Group
	group.SetLimit(manyInFlight)
	first := map[job.Slot]int{} // the first order of each run
	for i, o := range orders {
		if _, again := first[results[i].Slot]; again {
			continue
		}
		first[results[i].Slot] = i
		group.Go(func() error {
			results[i].Run, results[i].Err = c.triggerOne(ctx, results[i].Slot, o, stored)
			return nil
		})
	}
	_ = group.Wait()
	var created int
	for i, r := range results {
		if n := first[r.Slot]; n != i {
			results[i] = results[n]
			results[i].New = false
		} else if r.Err == nil && r.New {
			created++
		}
	}
	if created > 0 {
		c.ordered(ctx, "trigger", job.Event{Job: name, Count: created})
	}
	for _, r := range results {
		if r.Err != nil {
			return results, r.Err
		}
	}
	return results, nil
}

// storedRuns is what is stored about the runs of TriggerMany.
type storedRuns struct {
	storedRun
	records map[job.Slot]kv.LedgerEntry
	timers  map[job.Slot]stream.Timer // of the first shards
	noted   map[job.Slot]*storedRun   // with waiting and begun only
}

func (c *Client) readRuns(ctx context.Context, name string, orders []TriggerOptions, named []job.Slot) (s storedRuns, err error) {
	if err := c.cfg.Joined(ctx, name); err != nil {
		return s, fmt.Errorf("trigger job %s: %w", name, err)
	}
	if s.entry, _, err = c.cfg.Jobs.Read(ctx, name); err != nil {
		return s, fmt.Errorf("job %s: %w", name, err)
	}
	c.cfg.Alive()
	if len(named) > 0 || slices.ContainsFunc(orders, func(o TriggerOptions) bool { return !o.At.IsZero() }) {
		if s.now, err = c.cfg.Now(ctx); err != nil {
			return s, err
		}
	}
	if len(named) == 0 {
		return s, nil
	}
	// Timers, messages and records are read in the order in which a run moves through them. So a
	// run that moves on between two reads is found.
	var first []job.Slot
	for _, slot := range named {
		first = append(first, firstShards(slot, s.entry)...)
	}
	if s.timers, err = c.cfg.Timers.Latest(ctx, first); err != nil {
		return s, err
	}
	c.cfg.Alive()
	s.noted = map[job.Slot]*storedRun{}
	queue := s.entry.Job.WithDefaults().Queue
	s.all = s.entry.Job.Shards > 1 || c.editedLately(s.storedRun) || slices.ContainsFunc(orders, func(o TriggerOptions) bool { return o.At.After(s.now) })
	err = c.waitingRuns(ctx, name, s.now, s.all, func(w *stream.WaitingSlot) bool {
		run := s.noted[w.Slot.Whole()]
		if run == nil {
			run = &storedRun{}
			s.noted[w.Slot.Whole()] = run
		}
		run.note(w, queue)
		return true
	})
	if err != nil {
		return s, err
	}
	s.records, err = c.cfg.Ledger.Records(ctx, named)
	c.cfg.Alive()
	return s, err
}

func (c *Client) triggerOne(ctx context.Context, slot job.Slot, o TriggerOptions, many storedRuns) (Run, error) {
	stored := many.storedRun
	if e, ok := many.records[slot]; ok {
		stored.record = &e.Record
	}
	for _, first := range firstShards(slot, stored.entry) {
		if t, ok := many.timers[first]; ok && stored.timer == nil {
			stored.timer = &t
		}
	}
	if run := many.noted[slot]; run != nil {
		stored.waiting, stored.begun = run.waiting, run.begun
	}
	run, err := c.trigger(ctx, slot, o, stored)
	c.cfg.Alive()
	if errors.Is(err, job.ErrConflict) { // the run has changed since it was read
		o.Key = slot.Token
		run, _, err = c.readAndTrigger(ctx, slot, o)
	}
	if err != nil {
		return Run{Slot: slot}, err
	}
	run.client = c
	return run, nil
}
