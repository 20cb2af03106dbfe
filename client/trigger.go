package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// TriggerOptions describe a run of a job outside its plan. The zero value is a new run, at
// once, with the job's own payload.
type TriggerOptions struct {
	// Key names the run: at most job.MaxToken bytes of text; see [job.ValidateToken]. All orders
	// with the same job and key are one run, for as long as the ledger keeps its record. Empty: a
	// random key, so that each order is a new run.
	Key string

	// At is when to run. If it is zero or not in the future, the run starts at once, and is due
	// when it is ordered. The NATS server keeps a later run until it is due, which needs version
	// 2.12 or newer.
	At time.Time

	// Payload is passed to the handler unchanged. It is any JSON of at most job.MaxPayload
	// bytes. Nil: the job's payload.
	Payload json.RawMessage
}

// Validate returns an error that wraps job.ErrInvalid if an option is invalid. It needs no
// broker.
func (o TriggerOptions) Validate() error {
	if o.Key != "" {
		if err := job.ValidateToken(o.Key); err != nil {
			return fmt.Errorf("key: %w", err)
		}
	}
	switch {
	case len(o.Payload) > job.MaxPayload:
		return fmt.Errorf("%w payload: %d bytes, must be at most %d", job.ErrInvalid, len(o.Payload), job.MaxPayload)
	case len(o.Payload) > 0 && !(json.Valid(o.Payload) && utf8.Valid(o.Payload)):
		return fmt.Errorf("%w payload: it is not JSON in UTF-8", job.ErrInvalid)
	case !o.At.Before(stream.LatestTimer):
		return fmt.Errorf("%w time %s: must be before %s", job.ErrInvalid, o.At.Format(time.RFC3339), stream.LatestTimer.Format(time.RFC3339))
	}
	return nil
}

// slot names the run that o orders. Without a key, each call names another run.
func (o TriggerOptions) slot(name string) job.Slot {
	return job.Slot{Job: name, Token: cmp.Or(o.Key, rand.Text())}
}

// Run is a run that was triggered.
type Run struct {
	// Slot names the run. Its Token is the key, and its ID the run's only name.
	Slot job.Slot

	// New reports that this order created the run. Otherwise the run existed, and keeps the
	// time and payload of its first order. A run that waits for its first start may be reported
	// as new again in two cases. Either runs of the job with more than 4 MiB have waited for longer.
	// Or the login may not list what waits (the role caller), and the run was ordered longer ago
	// than the duplicate window (2 minutes by default), or was ordered for a time that has come.
	// It runs once all the same. If the broker stored the run and its answer was lost, the run may
	// be reported as not new.
	New bool

	// State is job.Pending while the run waits, and then the state of its record.
	State job.State

	// Queue is the queue whose workers run it. Due is the time for which it was ordered, or zero if
	// it was to start at once.
	Queue string
	Due   time.Time

	// MovedFrom is the queue for which the run was ordered before. It is set if the job's queue
	// has changed, and this order moved the run to Queue.
	MovedFrom string

	client *Client
}

// ID returns the slot ID of the run, like "report:@order-4711".
func (r Run) ID() string { return r.Slot.ID() }

// Trigger orders one run of a job. A paused job can be triggered too, since a pause only
// stops its schedule. If ctx carries a span of OpenTelemetry, the run belongs to its trace.
//
// Trigger returns when the broker has stored the run, or has it already. If ctx ends before
// that is known, the error wraps job.ErrUnknown: repeat the order with the same key to
// settle it. If there is no such job, the error wraps job.ErrNotFound. If the server is too
// old for triggers in the future, it wraps errors.ErrUnsupported.
func (c *Client) Trigger(ctx context.Context, name string, o TriggerOptions) (Run, error) {
	if err := codec.ValidateName("job", name); err != nil {
		return Run{}, err
	}
	if err := o.Validate(); err != nil {
		return Run{}, err
	}
	slot := o.slot(name)
	if err := c.cfg.Joined(ctx, name); err != nil {
		return Run{}, fmt.Errorf("trigger job %s: %w", name, err)
	}
	run, at, err := c.readAndTrigger(ctx, slot, o)
	if err == nil && run.New {
		c.ordered(ctx, "trigger", job.Event{ID: slot.ID(), Job: name, Time: at})
	}
	return run, err
}

// readAndTrigger reads what is stored about the run and orders it, until the run does not change in
// between. at is the broker's time, or zero if nothing depends on it. The caller publishes the event.
func (c *Client) readAndTrigger(ctx context.Context, slot job.Slot, o TriggerOptions) (run Run, at time.Time, err error) {
	for all := false; ; {
		stored, err := c.readRun(ctx, slot, o, all)
		if err != nil {
			return Run{}, at, err
		}
		run, err := c.trigger(ctx, slot, o, stored)
		c.cfg.Alive()
		if errors.Is(err, errBegun) {
			all = true
			continue
		}
		// A conflict means that the timer was set, moved or fired meanwhile: read again.
		if !errors.Is(err, job.ErrConflict) {
			run.client = c
			return run, stored.now, err
		}
	}
}

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

// errBegun reports that the stream has dropped the message of a run's last shard as a copy of a recent
// one. Unless young messages were looked for, it is not known whether the other shards are there, and
// which payload they have.
var errBegun = errors.New("another order has begun the run")

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

// mostWaiting bounds the size of the waiting messages that an order looks at, in each stream. The broker has
// no index of their keys, and cannot list their headers only.
const mostWaiting = 4 << 20

// waitingRuns calls found with the messages of a job's runs that wait for a worker, oldest first,
// until found returns false. Unless all is true, it leaves out the messages in the stream of slots that
// are so young that the stream would fold a second publication of their run. Nearly all messages are
// that young, so it usually reads few. If the login may not list the messages, waitingRuns finds none.
func (c *Client) waitingRuns(ctx context.Context, name string, now time.Time, all bool, found func(*stream.WaitingSlot) bool) error {
	if c.cfg.NoList {
		return nil
	}
	published := stream.WaitingFilter{Job: name, Bytes: mostWaiting}
	if !all {
		published.Before = now.Add(-c.cfg.Settings.WithDefaults().Duplicates + foldMargin)
	}
	for _, waiting := range []iter.Seq2[stream.WaitingSlot, error]{
		c.cfg.Slots.Waiting(ctx, published),
		c.cfg.Timers.Waiting(ctx, stream.WaitingFilter{Job: name, Fired: true, Bytes: mostWaiting}), // of any age: a fired timer has no message ID
	} {
		for w, err := range waiting {
			c.cfg.Alive()
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

// trigger publishes the run, or sets its timers, unless the run exists. Reading first only
// saves messages: the claim of the worker ensures that no run starts twice.
func (c *Client) trigger(ctx context.Context, slot job.Slot, o TriggerOptions, s storedRun) (Run, error) {
	j := s.entry.Job.WithDefaults()
	t := Run{Slot: slot, State: job.Pending, Queue: j.Queue}
	var err error
	switch {
	case s.record != nil:
		t.State, t.Queue, t.Due = s.record.State, s.record.Queue, s.record.Due
	case s.waiting != nil:
		w := s.waiting
		t.Queue, t.Due = w.Queue, w.Due
		if w.Queue != j.Queue && !o.At.After(s.now) {
			var folded bool
			folded, err = c.repeat(ctx, lastFirst(slot, w.Slot.Shards), j.Queue, *w)
			if !folded || !c.editedLately(s) { // a while after the edit, the stream folds only a repeated move
				t.Queue, t.MovedFrom = j.Queue, w.Queue
			}
		}
	case s.timer != nil:
		t.Due = s.timer.Due
		if s.timer.Queue != j.Queue && !c.cfg.Timers.MaySet(slot.Job) {
			return c.orderLater(ctx, slot, TriggerOptions{At: s.timer.Due})
		} else if s.timer.Queue != j.Queue {
			t.MovedFrom = s.timer.Queue
			err = c.move(ctx, lastFirst(slot, s.timer.Slot.Shards), j.Queue)
		}
	default:
		return c.order(ctx, slot, o, s)
	}
	return t, err
}

// order publishes a run that does not exist, or sets its timers. If an earlier order has published or
// set some of its shards and then failed, the others get the time and the payload of that order.
//
// A run of several shards has a message or timer for each. The first shard is published last:
// if it exists, all do.
func (c *Client) order(ctx context.Context, slot job.Slot, o TriggerOptions, s storedRun) (Run, error) {
	j := s.entry.Job.WithDefaults()
	payload := o.Payload
	if len(payload) == 0 {
		payload = j.Payload
	}
	later := o.At.After(s.now)
	if !later {
		o.At = time.Time{} // the run was not late, nor past its deadline, before it was ordered
	}
	if later && s.begun == nil && !c.cfg.Timers.MaySet(slot.Job) {
		return c.orderLater(ctx, slot, o)
	}
	t := Run{Slot: slot, State: job.Pending, New: true, Queue: j.Queue, Due: o.At}
	all := lastFirst(slot, j.Shards)
	m := core.Message{JobRevision: s.entry.Revision, Node: c.cfg.Operator, Due: o.At, Traceparent: tracing.Traceparent(ctx)}
	if w := s.begun; w != nil {
		// The order that published it has failed, or goes on at the same time. It was for now, or its timer has fired.
		t.New, t.Due = !later && bytes.Equal(payload, w.Payload), w.Due
		m, all, later, payload = w.Message, lastFirst(slot, w.Slot.Shards), false, w.Payload
	}
	for i, shard := range all {
		m.Slot = shard
		if !later {
			at, folded, err := c.cfg.Slots.PutAt(ctx, j.Queue, m, payload)
			switch {
			case err != nil:
				return t, err
			case !folded || o.Key == "": // a random key can only fold with a copy of this order
			case i == 0 && len(all) > 1 && s.begun == nil && !s.all:
				return t, errBegun
			case i == len(all)-1:
				t.New = false
				if c.editedLately(s) {
					return c.inFormerQueue(ctx, t, shard, at)
				}
			}
			continue
		}
		_, err := c.cfg.Timers.Set(ctx, stream.Timer{Message: m, Queue: j.Queue, Payload: payload}, 0)
		if errors.Is(err, job.ErrConflict) && i < len(all)-1 {
			var set *stream.Timer
			if set, err = c.setBefore(ctx, shard, j.Queue); err == nil {
				t.New = t.New && set.Due.Equal(m.Due) && bytes.Equal(set.Payload, payload)
				m, payload, t.Due = set.Message, set.Payload, set.Due
			}
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

// inFormerQueue returns the run with the queue and the time of the earlier message, at a sequence of the
// stream, into which the stream has folded this order: the job may have had another queue then. If the
// message is not found, a worker has the run already, or will find it.
func (c *Client) inFormerQueue(ctx context.Context, t Run, shard job.Slot, at uint64) (Run, error) {
	w, err := c.cfg.Slots.At(ctx, at)
	c.cfg.Alive()
	switch {
	case errors.Is(err, job.ErrNotFound), errors.Is(err, job.ErrDenied), exchange.IsUnreadable(err):
		return t, nil
	case err != nil:
		return t, err
	case w.Slot == shard:
		t.Queue, t.Due = w.Queue, w.Due
	}
	return t, nil
}

// setBefore returns the timer of a shard that another order has set, after moving it to the queue. If it
// is gone or has changed, the error is job.ErrConflict.
func (c *Client) setBefore(ctx context.Context, shard job.Slot, queue string) (*stream.Timer, error) {
	if err := c.move(ctx, []job.Slot{shard}, queue); err != nil {
		return nil, err
	}
	timer, _, err := c.timer(ctx, shard)
	if timer == nil && err == nil {
		err = job.ErrConflict
	}
	return timer, err
}

// lastFirst returns the shards of a run, the first one last.
func lastFirst(run job.Slot, shards int) []job.Slot {
	all := shardsOf(run, shards)
	slices.Reverse(all)
	return all
}

// move moves the run's timers to another queue. It returns job.ErrConflict if the last of
// them has changed meanwhile.
func (c *Client) move(ctx context.Context, shards []job.Slot, queue string) error {
	for i, shard := range shards {
		timer, revision, err := c.timer(ctx, shard)
		if err != nil {
			return err
		}
		if timer == nil || timer.Queue == queue {
			continue
		}
		timer.Queue = queue
		_, err = c.cfg.Timers.Set(ctx, *timer, revision)
		if err != nil && (!errors.Is(err, job.ErrConflict) || i == len(shards)-1) {
			return err
		}
	}
	return nil
}

// repeat publishes the waiting message of a run once more, for another queue. The message that stays
// in the old queue does no harm: a worker that receives it finds the run's record. folded reports that
// the stream dropped the message of the last shard as a copy of a recent one.
func (c *Client) repeat(ctx context.Context, shards []job.Slot, queue string, w stream.WaitingSlot) (folded bool, err error) {
	for _, shard := range shards {
		w.Slot = shard
		if folded, err = c.cfg.Slots.Put(ctx, queue, w.Message, w.Payload); err != nil {
			return false, err
		}
	}
	return folded, nil
}

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
	shards := len(firstShards(job.Slot{Job: name}, s.entry))
	s.all = s.entry.Job.Shards > 1 || shards > 1 && c.editedLately(s.storedRun) || slices.ContainsFunc(orders, func(o TriggerOptions) bool { return o.At.After(s.now) })
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

// orderLater has a node order a run for later, because this login may not set timers. The node does all
// that Trigger does.
func (c *Client) orderLater(ctx context.Context, slot job.Slot, o TriggerOptions) (Run, error) {
	request, err := json.Marshal(struct {
		Key     string          `json:"key"`
		At      time.Time       `json:"at"`
		Payload json.RawMessage `json:"payload,omitempty"`
		By      string          `json:"by,omitempty"`
	}{slot.Token, o.At.UTC(), o.Payload, c.cfg.Operator})
	if err != nil {
		return Run{}, err
	}
	data, err := c.cfg.Fleet.AskLater(ctx, slot.Job, request)
	if err != nil {
		return Run{}, fmt.Errorf("trigger %s later: %w", slot, err)
	}
	var a struct {
		New       bool
		State     job.State
		Queue     string
		Due       time.Time
		MovedFrom string `json:"moved_from"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return Run{}, fmt.Errorf("trigger %s later: read the node's answer: %w", slot, err)
	}
	return Run{Slot: slot, New: a.New, State: a.State, Queue: a.Queue, Due: a.Due, MovedFrom: a.MovedFrom}, nil
}
