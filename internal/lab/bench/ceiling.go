package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// Rate is how many slots were run in a time.
type Rate struct {
	Slots int
	Took  time.Duration
}

// PerSecond returns the rate in slots a second.
func (r Rate) PerSecond() float64 { return float64(r.Slots) / r.Took.Seconds() }

func (r Rate) String() string { return fmt.Sprintf("%.0f slots/s", r.PerSecond()) }

// claimSize and endSize are the sizes of the two records of a short slot.
const (
	claimSize = 430
	endSize   = 540
)

// Shape is how the drain by hand uses the broker: so many loops, each of which takes batches of
// slots.
type Shape struct{ Loops, Batch int }

// Shapes are the shapes to try. Which is best depends on the machine.
func Shapes() []Shape { return []Shape{{2, 128}, {4, 256}, {8, 128}, {4, 1024}} }

// DrainCeiling drains messages by hand. It creates streams of the given name and number of
// replicas, and deletes them. The time is from the first pull to the last ack that the broker
// counts.
func DrainCeiling(ctx context.Context, js jetstream.JetStream, name string, replicas, slots int, shape Shape) (Rate, error) {
	return drainByHand(ctx, js, name, replicas, slots, shape, func(h *hand, drain func(context.Context) error) (time.Time, error) {
		if err := h.fill(ctx, slots, min(slots, fewJobs)); err != nil {
			return time.Time{}, err
		}
		return time.Now(), drain(ctx)
	})
}

// BurstCeiling is DrainCeiling with messages that are published meanwhile. The time counts from
// the first one that is sent.
func BurstCeiling(ctx context.Context, js jetstream.JetStream, name string, replicas, slots int, shape Shape) (Rate, error) {
	return drainByHand(ctx, js, name, replicas, slots, shape, func(h *hand, drain func(context.Context) error) (time.Time, error) {
		source, err := newHand(js, name, shape) // its publications do not hold up claims
		if err != nil {
			return time.Time{}, err
		}
		began := time.Now()
		both, ctx := errgroup.WithContext(ctx)
		both.Go(func() error { return source.fill(ctx, slots, slots) })
		both.Go(func() error { return drain(ctx) })
		return began, both.Wait()
	})
}

// drainByHand calls work, which stores the messages and drains them. The time counts from the
// time that work returns.
func drainByHand(ctx context.Context, js jetstream.JetStream, name string, replicas, slots int, shape Shape, work func(h *hand, drain func(context.Context) error) (time.Time, error)) (_ Rate, err error) {
	h, err := newHand(js, name, shape)
	if err != nil {
		return Rate{}, err
	}
	defer func() { err = errors.Join(err, h.remove(ctx)) }()
	queue, err := h.create(ctx, replicas)
	if err != nil {
		return Rate{}, err
	}
	h.left.Store(int64(slots))
	began, err := work(h, func(ctx context.Context) error {
		group, working := errgroup.WithContext(ctx)
		for range shape.Loops {
			group.Go(func() error { return h.loop(working, queue) })
		}
		return group.Wait()
	})
	if err != nil {
		return Rate{}, err
	}
	if err := Empty(ctx, h.slots); err != nil {
		return Rate{}, err
	}
	return Rate{slots, time.Since(began)}, nil
}

// hand runs slots without a scheduler.
type hand struct {
	js     jetstream.JetStream
	name   string
	prefix string // of the subjects of buckets, in another domain or account
	shape  Shape
	slots  jetstream.Stream
	left   atomic.Int64 // slots that a drain has not taken
}

// newHand creates a JetStream client with as much in flight as kv has.
func newHand(js jetstream.JetStream, name string, shape Shape) (h *hand, err error) {
	h = &hand{name: name, shape: shape}
	many := jetstream.WithPublishAsyncMaxPending(1 << 14)
	switch o := js.Options(); {
	case o.Domain != "":
		h.prefix = "$JS." + o.Domain + ".API."
		h.js, err = jetstream.NewWithDomain(js.Conn(), o.Domain, many)
	case o.APIPrefix != "":
		h.prefix = strings.TrimSuffix(o.APIPrefix, ".") + "."
		h.js, err = jetstream.NewWithAPIPrefix(js.Conn(), o.APIPrefix, many)
	default:
		h.js, err = jetstream.New(js.Conn(), many)
	}
	return h, err
}

func (h *hand) create(ctx context.Context, replicas int) (_ jetstream.Consumer, err error) {
	h.slots, err = h.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: h.name + "_slots", Subjects: []string{h.name + ".slot.>"}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, Replicas: replicas,
	})
	if err != nil {
		return nil, err
	}
	_, err = h.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "KV_" + h.name, Subjects: []string{"$KV." + h.name + ".>"}, MaxMsgsPerSubject: 1, MaxAge: time.Hour,
		Discard: jetstream.DiscardNew, DenyPurge: true, DenyDelete: true, AllowDirect: true, Replicas: replicas,
	})
	if err != nil {
		return nil, err
	}
	return h.slots.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "default", FilterSubject: h.name + ".slot.default.>", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: time.Minute, MaxAckPending: 1_000_000,
	})
}

// remove removes the streams, also when ctx has ended.
func (h *hand) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	return errors.Join(ignoreMissing(h.js.DeleteStream(ctx, h.name+"_slots")), ignoreMissing(h.js.DeleteStream(ctx, "KV_"+h.name)))
}

func ignoreMissing(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}

// fill publishes slots of so many jobs, each with its own subject: a new subject costs the
// server more than a known one.
func (h *hand) fill(ctx context.Context, slots, jobs int) error {
	for i := range slots {
		if err := h.publish("report-"+strconv.Itoa(i%jobs), strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return published(ctx, h.js)
}

func (h *hand) publish(job, slot string) error {
	slot = "report:" + slot
	m := &nats.Msg{Subject: h.name + ".slot.default." + job, Data: []byte(`{"n":1}`), Header: nats.Header{
		"Nats-Msg-Id":         {slot},
		"Cronce-Slot":         {slot},
		"Cronce-Job-Revision": {"1"},
		"Cronce-Node":         {"bench-1-1763700000-abcdefgh"},
		"Cronce-Due":          {"2026-11-21T07:00:00Z"},
	}}
	_, err := h.js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute))
	return err
}

func published(ctx context.Context, js jetstream.JetStream) error {
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loop takes batches until no slots are left. An empty batch does not say so: messages reach a
// consumer some time after they were stored.
func (h *hand) loop(ctx context.Context, queue jetstream.Consumer) error {
	claim, end := make([]byte, claimSize), make([]byte, endSize)
	for h.left.Load() > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, err := queue.FetchNoWait(h.shape.Batch)
		if err != nil {
			return err
		}
		var msgs []jetstream.Msg
		var futures []jetstream.PubAckFuture
		for msg := range batch.Messages() {
			f, err := h.write(msg, claim, 0)
			if err != nil {
				return err
			}
			msgs, futures = append(msgs, msg), append(futures, f)
		}
		if err := batch.Error(); err != nil {
			return err
		}
		h.left.Add(-int64(len(msgs)))
		for i, msg := range msgs {
			revision, err := answer(ctx, futures[i])
			if err != nil {
				return err
			}
			if futures[i], err = h.write(msg, end, revision); err != nil {
				return err
			}
		}
		for i, msg := range msgs {
			if _, err := answer(ctx, futures[i]); err != nil {
				return err
			}
			if err := msg.Ack(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *hand) write(msg jetstream.Msg, value []byte, revision uint64) (jetstream.PubAckFuture, error) {
	key := h.prefix + "$KV." + h.name + "." + msg.Headers().Get("Nats-Msg-Id")
	return h.js.PublishMsgAsync(&nats.Msg{Subject: key, Data: value},
		jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithStallWait(time.Minute))
}

func answer(ctx context.Context, f jetstream.PubAckFuture) (uint64, error) {
	select {
	case ack := <-f.Ok():
		return ack.Sequence, nil
	case err := <-f.Err():
		return 0, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Empty waits until a stream has no message left: every ack has arrived.
func Empty(ctx context.Context, s jetstream.Stream) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := s.Info(ctx)
		if err != nil {
			return err
		}
		if info.State.Msgs == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d messages are left in %s: %w", info.State.Msgs, info.Config.Name, ctx.Err())
		}
	}
}
