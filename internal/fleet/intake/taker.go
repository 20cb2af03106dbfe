package intake

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/tracing"
)

const (
	// pullTime is how long a pull request lasts, and drainTime how long it lasts if the plan has
	// ended.
	pullTime  = 30 * time.Second
	drainTime = time.Second

	// afterEndDelay is about how long messages that were stored after the plan's end are delayed
	// while its consumer drains.
	afterEndDelay = 5 * time.Second

	// seemsTime is how long a plan has to seem drained before it counts as drained: longer than the
	// broker takes to deliver an unacked message again (30 s).
	seemsTime = 40 * time.Second
)

// taker makes slots of the messages of one consumer.
type taker struct {
	cfg   Config
	entry plans.Entry
	log   *slog.Logger
	planConsumer

	limiter chan struct{}

	mu       sync.Mutex
	afterEnd core.AfterEnd
	seems    time.Time // since when the plan seems drained, and none of its messages was delivered here; zero: it does not
}

func newTaker(j *jobIntake, c planConsumer) *taker {
	log := j.log.With("stream", c.plan.Plan.On.Stream, "subject", c.plan.Plan.On.Subject)
	return &taker{cfg: j.cfg, entry: j.entry, log: log, planConsumer: c, limiter: make(chan struct{}, atOnce), afterEnd: core.AfterEnd{Seen: map[uint64]bool{}}}
}

// isOver reports whether an edit has ended the plan.
func (t *taker) isOver() bool { return !t.plan.To.IsZero() }

// run takes messages until ctx ends, the plan is drained, or an error occurs.
func (t *taker) run(ctx context.Context) (drained bool, err error) {
	feed, err := t.cfg.Open(ctx, t.consumer)
	if err != nil {
		return false, err
	}
	if !t.isOver() {
		t.log.Info("taking messages: each one starts the job")
	}
	var publications sync.WaitGroup
	defer publications.Wait()
	handle := func(group []jetstream.Msg) error {
		if err := t.check(ctx, feed); err != nil {
			for _, m := range group {
				_ = m.Nak()
			}
			return err
		}
		for _, m := range group {
			t.limiter <- struct{}{}
			publications.Go(func() {
				defer func() { <-t.limiter }()
				t.handle(ctx, m)
			})
		}
		return nil
	}
	wait := pullTime
	if t.isOver() {
		wait = drainTime
	}
	for ctx.Err() == nil {
		if err := feed.Groups(ctx, atOnce, wait, handle); err != nil {
			return false, err
		}
		if !t.isOver() {
			continue
		}
		publications.Wait()
		if drained, err := t.isDrained(ctx, feed); drained || err != nil {
			return drained, err
		}
	}
	return false, nil
}

// check verifies, after messages were delivered and before they become slots, that the
// consumer and the definition are still the current ones. A stream that was deleted and created again
// has other messages under the same numbers. A message that was stored after an edit belongs to the
// new plan, which this process may not know yet.
func (t *taker) check(ctx context.Context, feed Feed) error {
	if _, err := t.state(ctx, feed); err != nil {
		return err
	}
	e, err := t.cfg.Read(ctx, t.entry.Job.Name)
	if err != nil {
		return err
	}
	if e.Revision != t.entry.Revision {
		return errEdited
	}
	return nil
}

// state returns how far the consumer has come, or an error if it is not the one that was found.
func (t *taker) state(ctx context.Context, feed Feed) (core.OnState, error) {
	state, err := feed.State(ctx)
	if err != nil {
		return state, err
	}
	if !state.Created.Equal(t.consumer.Created) {
		return state, fmt.Errorf("consumer %s of stream %s was deleted and created again", t.consumer.Name, t.consumer.Stream)
	}
	return state, nil
}

// isDrained reports whether all messages of a plan that is over are acked.
func (t *taker) isDrained(ctx context.Context, feed Feed) (bool, error) {
	if t.cfg.Now().Before(t.plan.To.Add(settleTime)) {
		return false, nil
	}
	state, err := t.state(ctx, feed)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case state.IsDrained(t.afterEnd):
		return true, nil
	case !state.SeemsDrained(t.afterEnd):
		t.seems = time.Time{}
	case t.seems.IsZero():
		t.seems = time.Now()
	}
	return !t.seems.IsZero() && time.Since(t.seems) > seemsTime, nil
}

// handle publishes the slot of a message and then acks the message. If the slot is not stored,
// the message is not acked and is redelivered.
func (t *taker) handle(ctx context.Context, m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		return
	}
	stored, sequence := meta.Timestamp, meta.Sequence.Stream
	switch {
	case t.isOver() && stored.After(t.plan.To):
		t.noteAfterEnd(meta)
		// The message is not acked, because a work queue would lose it. The delay is random,
		// so that each producer eventually gets each of them.
		_ = m.NakWithDelay(afterEndDelay/2 + rand.N(afterEndDelay))
		return
	case !stored.After(t.plan.From) && !t.consumer.WorkQueue && t.consumer.SequenceOnlyUntil.IsZero():
		_ = m.Ack() // the message belongs to the previous plan, or to none
		return
	}
	t.noteOwn()
	event := core.StreamEvent{
		Stream: t.consumer.Stream, Created: t.consumer.StreamCreated, Sequence: sequence, Stored: stored,
		ID: m.Headers().Get(jetstream.MsgIDHeader), Size: len(m.Data()), SequenceOnly: !stored.After(t.consumer.SequenceOnlyUntil),
	}
	parent := tracing.Traceparent(tracing.Continue(ctx, m.Headers()))
	for _, s := range core.EventRun(t.entry, event) {
		s.Node, s.Traceparent = t.cfg.Node, parent
		payload := m.Data()
		if s.Refused != "" {
			t.log.Error("message cannot become a payload: its run is recorded as failed", "slot", s.Slot.ID(), "reason", s.Refused)
			payload = nil
		}
		if _, err := t.cfg.Slots.Put(ctx, t.entry.Job.WithDefaults().Queue, s, payload); err != nil {
			if ctx.Err() == nil {
				t.log.Warn("cannot publish the slot of a message, will retry", "slot", s.Slot.ID(), "error", err)
				_ = m.NakWithDelay(retryDelay)
			}
			return
		}
	}
	_ = m.Ack() // if it is lost, the message is redelivered and names the same slot
}

// noteOwn notes a message of the plan, which may stay unacked.
func (t *taker) noteOwn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seems = time.Time{}
}

// noteAfterEnd notes a message that was stored after the plan's end. This may be a repeated delivery.
// Its number is higher than that of the message's first delivery, by which the server counts acks, so
// afterEnd.First is then too high, and never too low.
func (t *taker) noteAfterEnd(meta *jetstream.MsgMetadata) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.afterEnd.Seen[meta.Sequence.Stream] = true
	if first := t.afterEnd.First; first == 0 || meta.Sequence.Consumer < first {
		t.afterEnd.First = meta.Sequence.Consumer
	}
}
