package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
)

// Rate is a number of slots, and how long it took to publish or to run them.
type Rate struct {
	Slots int
	Took  time.Duration
}

// PerSecond returns the rate in slots a second.
func (r Rate) PerSecond() float64 { return float64(r.Slots) / r.Took.Seconds() }

// claimSize and endSize are the sizes of the two records of a short slot.
const (
	claimSize = 430
	endSize   = 540
)

// Shape is how the work by hand uses the broker.
type Shape struct {
	Loops    int  // how many goroutines drain
	Batch    int  // how many slots each of them pulls at a time
	Together bool // messages to one stream go in atomic batches
}

func (s Shape) String() string {
	if s.Together {
		return fmt.Sprintf("%d loops with atomic batches of %d", s.Loops, s.Batch)
	}
	return fmt.Sprintf("%d loops with batches of %d", s.Loops, s.Batch)
}

// Shapes returns the shapes to try. Which of them is the fastest depends on the machine and the
// storage.
func Shapes(atomicBatches bool) []Shape {
	shapes := []Shape{{Loops: 2, Batch: 128}, {Loops: 4, Batch: 256}, {Loops: 8, Batch: 128}, {Loops: 4, Batch: 1024}}
	if atomicBatches {
		shapes = append(shapes, Shape{4, 256, true}, Shape{4, maxBatch, true})
	}
	return shapes
}

// DrainCeiling drains messages by hand. The measured time is from the first pull until the broker
// has every ack.
func DrainCeiling(ctx context.Context, connect Connect, name string, replicas, slots int, shape Shape) (Rate, error) {
	return drainByHand(ctx, connect, name, replicas, slots, shape, func(h *hand, drain func(context.Context) error) (time.Time, error) {
		if err := h.publish(ctx, h.publications(slots, min(slots, fewJobs))); err != nil {
			return time.Time{}, err
		}
		return time.Now(), drain(ctx)
	})
}

// BurstCeiling publishes messages by hand and drains them at the same time. The measured time is from
// the first publication until the broker has every ack.
func BurstCeiling(ctx context.Context, connect Connect, name string, replicas, slots int, shape Shape) (Rate, error) {
	return drainByHand(ctx, connect, name, replicas, slots, shape, func(h *hand, drain func(context.Context) error) (time.Time, error) {
		source, err := newHand(h.js, name, shape) // a separate client, so that claims do not wait for publications
		if err != nil {
			return time.Time{}, err
		}
		messages := source.publications(slots, slots)
		began := time.Now()
		both, ctx := errgroup.WithContext(ctx)
		both.Go(func() error { return source.publish(ctx, messages) })
		both.Go(func() error { return drain(ctx) })
		return began, both.Wait()
	})
}

// drainByHand measures work, which publishes messages and calls drain to drain them. work returns the
// instant at which the measured time begins. That time ends when the broker has every ack.
func drainByHand(ctx context.Context, connect Connect, name string, replicas, slots int, shape Shape, work func(h *hand, drain func(context.Context) error) (time.Time, error)) (rate Rate, err error) {
	err = byHand(ctx, connect, name, replicas, shape, func(h *hand, queue jetstream.Consumer) error {
		h.left.Store(int64(slots))
		began, err := work(h, func(ctx context.Context) error {
			group, working := errgroup.WithContext(ctx)
			for range shape.Loops {
				group.Go(func() error { return h.loop(working, queue) })
			}
			return group.Wait()
		})
		if err == nil {
			_, err = empty(ctx, h.slots)
		}
		rate = Rate{slots, time.Since(began)}
		return err
	})
	return rate, err
}

// byHand opens a connection, creates the streams and the consumer of a hand, calls work with the hand
// and its consumer, and deletes the streams.
func byHand(ctx context.Context, connect Connect, name string, replicas int, shape Shape, work func(h *hand, queue jetstream.Consumer) error) (err error) {
	js, err := connect(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	h, err := newHand(js, name, shape)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.remove(ctx)) }()
	queue, err := h.create(ctx, replicas)
	if err != nil {
		return err
	}
	return work(h, queue)
}

// hand publishes and runs slots by hand, with the client library alone.
type hand struct {
	js     jetstream.JetStream
	name   string
	prefix string // of the subjects of buckets, if they are in another domain or account
	shape  Shape
	slots  jetstream.Stream
	left   atomic.Int64 // slots that the drain has not pulled yet

	failed chan error // the first publication that failed
}

// newHand creates a hand. Its JetStream client allows more publications in flight than the default of
// the library, 4000, so that this limit does not slow the work down.
func newHand(js jetstream.JetStream, name string, shape Shape) (h *hand, err error) {
	h = &hand{name: name, shape: shape, failed: make(chan error, 1)}
	many := jetstream.WithPublishAsyncMaxPending(1 << 14)
	failed := jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
		core.TrySend(h.failed, err)
	})
	switch o := js.Options(); {
	case o.Domain != "":
		h.prefix = "$JS." + o.Domain + ".API."
		h.js, err = jetstream.NewWithDomain(js.Conn(), o.Domain, many, failed)
	case o.APIPrefix != "":
		h.prefix = strings.TrimSuffix(o.APIPrefix, ".") + "."
		h.js, err = jetstream.NewWithAPIPrefix(js.Conn(), o.APIPrefix, many, failed)
	default:
		h.js, err = jetstream.New(js.Conn(), many, failed)
	}
	return h, err
}

func (h *hand) create(ctx context.Context, replicas int) (_ jetstream.Consumer, err error) {
	h.slots, err = h.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: h.name + "_slots", Subjects: []string{h.name + ".slot.>"}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, Replicas: replicas, AllowAtomicPublish: h.shape.Together,
	})
	if err != nil {
		return nil, err
	}
	_, err = h.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "KV_" + h.name, Subjects: []string{"$KV." + h.name + ".>"}, MaxMsgsPerSubject: 1, MaxAge: time.Hour,
		Discard: jetstream.DiscardNew, DenyPurge: true, DenyDelete: true, AllowDirect: true, Replicas: replicas,
		AllowAtomicPublish: h.shape.Together,
	})
	if err != nil {
		return nil, err
	}
	return h.slots.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "default", FilterSubject: h.name + ".slot.default.>", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: time.Minute, MaxAckPending: 1_000_000,
	})
}

// remove removes the streams, even when ctx has ended.
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

// publications returns the messages of slots of the given number of jobs. Each job has its own
// subject, as in a fleet: a new subject costs the server more than a known one.
func (h *hand) publications(slots, jobs int) []*nats.Msg {
	messages := make([]*nats.Msg, slots)
	for i := range messages {
		messages[i] = h.publication("report-"+strconv.Itoa(i%jobs), strconv.Itoa(i))
	}
	return messages
}

func (h *hand) publish(ctx context.Context, messages []*nats.Msg) error {
	if h.shape.Together {
		return h.publishTogether(ctx, messages)
	}
	for _, m := range messages {
		if _, err := h.js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-h.js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-h.failed: // the client library reports each failure before it completes
		return fmt.Errorf("publish by hand: %w", err)
	default:
		return nil
	}
}

func (h *hand) publication(job, slot string) *nats.Msg {
	slot = "report:" + slot
	return &nats.Msg{Subject: h.name + ".slot.default." + job, Data: []byte(`{"n":1}`), Header: nats.Header{
		"Nats-Msg-Id":         {slot},
		"Cronce-Slot":         {slot},
		"Cronce-Job-Revision": {"1"},
		"Cronce-Node":         {"bench-1-1763700000-abcdefgh"},
		"Cronce-Due":          {"2026-11-21T07:00:00Z"},
	}}
}

// loop pulls and runs batches until no slots are left. An empty batch does not end the loop, because
// a message reaches a consumer some time after it was stored.
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
		for msg := range batch.Messages() {
			msgs = append(msgs, msg)
		}
		if err := batch.Error(); err != nil {
			return err
		}
		h.left.Add(-int64(len(msgs)))
		revisions, err := h.write(ctx, msgs, claim, make([]uint64, len(msgs)))
		if err != nil {
			return err
		}
		if _, err := h.write(ctx, msgs, end, revisions); err != nil {
			return err
		}
		for _, msg := range msgs {
			if err := msg.Ack(); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes a record for each slot at its expected revision, and returns the new revisions.
func (h *hand) write(ctx context.Context, slots []jetstream.Msg, value []byte, expected []uint64) ([]uint64, error) {
	writes := make([]*nats.Msg, len(slots))
	for i, slot := range slots {
		writes[i] = &nats.Msg{Subject: h.prefix + "$KV." + h.name + "." + slot.Headers().Get("Nats-Msg-Id"), Data: value,
			Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(expected[i], 10)}}}
	}
	if h.shape.Together {
		return h.storeTogether(ctx, writes)
	}
	futures := make([]jetstream.PubAckFuture, len(writes))
	for i, m := range writes {
		var err error
		if futures[i], err = h.js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			return nil, err
		}
	}
	revisions := make([]uint64, len(writes))
	for i, f := range futures {
		select {
		case ack := <-f.Ok():
			revisions[i] = ack.Sequence
		case err := <-f.Err():
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return revisions, nil
}

// empty waits until a work queue has no message left. Then the broker has every ack.
func empty(ctx context.Context, s jetstream.Stream) (jetstream.StreamState, error) {
	state, err := until(ctx, s, 5*time.Millisecond, func(state jetstream.StreamState) bool { return state.Msgs == 0 })
	if err != nil {
		err = fmt.Errorf("%d messages are left in %s: %w", state.Msgs, s.CachedInfo().Config.Name, err)
	}
	return state, err
}

// until reads the state of a stream again and again until done returns true, and returns that state.
func until(ctx context.Context, s jetstream.Stream, every time.Duration, done func(jetstream.StreamState) bool) (jetstream.StreamState, error) {
	for {
		info, err := s.Info(ctx)
		if err != nil {
			return s.CachedInfo().State, err
		}
		if done(info.State) {
			return info.State, nil
		}
		if !wire.Wait(ctx, every) {
			return info.State, context.Cause(ctx)
		}
	}
}

// maxBatch is the largest number of messages in an atomic batch, as in internal/broker/wire.
const maxBatch = 1000

// publishTogether publishes messages in atomic batches, several of them at the same time.
func (h *hand) publishTogether(ctx context.Context, messages []*nats.Msg) error {
	const open = 4
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(open)
	for part := range slices.Chunk(messages, maxBatch) {
		group.Go(func() error {
			_, err := h.storeTogether(ctx, part)
			return err
		})
	}
	return group.Wait()
}

// storeTogether stores messages in one stream as an atomic batch (ADR-50 of NATS), and returns
// their sequences.
func (h *hand) storeTogether(ctx context.Context, messages []*nats.Msg) ([]uint64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	nc, id := h.js.Conn(), rand.Text()
	for i, m := range messages {
		m.Header["Nats-Batch-Id"], m.Header["Nats-Batch-Sequence"] = []string{id}, []string{strconv.Itoa(i + 1)}
		if i == len(messages)-1 {
			break
		}
		if err := nc.PublishMsg(m); err != nil {
			return nil, err
		}
	}
	last := messages[len(messages)-1]
	last.Header["Nats-Batch-Commit"] = []string{"1"}
	answer, err := nc.RequestMsgWithContext(ctx, last)
	if err != nil {
		return nil, err
	}
	var ack struct {
		Sequence uint64 `json:"seq"`
		Count    int    `json:"count"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil || ack.Count != len(messages) {
		return nil, fmt.Errorf("the server answered an atomic batch of %d messages with %s", len(messages), answer.Data)
	}
	sequences := make([]uint64, len(messages))
	for i := range sequences {
		sequences[i] = ack.Sequence - uint64(len(messages)-1-i)
	}
	return sequences, nil
}
