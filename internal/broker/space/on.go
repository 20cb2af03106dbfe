package space

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

const (
	// onWait is the time after which the server redelivers an unacked message. maxOnPending is the
	// number of messages that may be delivered and not acked.
	onWait       = 30 * time.Second
	maxOnPending = 10_000

	// AdoptOn sets OnConsumer.SequenceOnlyUntil to sequenceOnlyMargin after its call, rounded down
	// to sequenceOnlyStep. All producers read the consumer within half a minute, so they know that
	// time before it passes.
	sequenceOnlyMargin, sequenceOnlyStep = 2 * time.Minute, time.Minute
)

// Metadata keys of a consumer whose messages start a job.
const (
	onFromKey         = "cronce_from" // start of the plan that the consumer is for
	onSequenceOnlyKey = "cronce_bare" // core.OnConsumer.SequenceOnlyUntil
)

// OnConsumers returns the job's existing consumers on the stream. If the stream does
// not exist, the error is job.ErrNotFound.
func (s *Space) OnConsumers(ctx context.Context, stream, name string) ([]core.OnConsumer, error) {
	var found []core.OnConsumer
	var denied error
	names := layout.OnConsumers(s.Namespace, name)
	// After an edit, the consumer of the new plan is created before the old one is removed. If neither
	// is found, the first one may have been created after it was read, so it is read again.
	for i, consumer := range append(names, names[0]) {
		if i == len(names) && len(found) > 0 {
			break
		}
		c, err := s.onConsumer(ctx, stream, consumer)
		switch {
		case err == nil:
			found = append(found, c)
		case errors.Is(err, jetstream.ErrConsumerNotFound):
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return nil, errNoStream(stream)
		case errors.Is(err, job.ErrDenied) && i == 1:
			denied = err // a login from an older version may not read the second consumer; it works until the next edit
		default:
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, denied
	}
	info, err := s.onStream(ctx, stream)
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i].StreamCreated, found[i].WorkQueue = info.Created, info.Config.Retention == jetstream.WorkQueuePolicy
	}
	return found, nil
}

// errNoStream returns the error for a stream that does not exist.
func errNoStream(stream string) error {
	return fmt.Errorf("stream %s: %w: create it, or correct the job's on.stream", stream, job.ErrNotFound)
}

// onConsumer reads one consumer, without StreamCreated and WorkQueue.
func (s *Space) onConsumer(ctx context.Context, stream, consumer string) (core.OnConsumer, error) {
	found, err := s.consumer(ctx, stream, consumer)
	if err != nil {
		return core.OnConsumer{}, err
	}
	info := found.CachedInfo()
	c := core.OnConsumer{Stream: stream, Name: consumer, On: job.On{Stream: stream, Subject: filters(info.Config)}, Created: info.Created}
	c.From, _ = time.Parse(time.RFC3339Nano, info.Config.Metadata[onFromKey])
	c.SequenceOnlyUntil, _ = time.Parse(time.RFC3339Nano, info.Config.Metadata[onSequenceOnlyKey])
	return c, nil
}

// onStream reads the stream whose messages start a job.
func (s *Space) onStream(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	info, err := s.StreamInfo(ctx, "look for stream "+stream, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = errNoStream(stream)
	}
	return info, err
}

// OldestQueued returns when the oldest message of a work queue was stored. It returns zero if the queue is
// empty, and if the stream is no work queue or does not exist.
func (s *Space) OldestQueued(ctx context.Context, stream string) (time.Time, error) {
	info, err := s.onStream(ctx, stream)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, err
	case info.Config.Retention != jetstream.WorkQueuePolicy || info.State.Msgs == 0:
		return time.Time{}, nil
	}
	return s.Stamped(info.State.FirstTime), nil
}

// BeginOn creates the consumer of a plan of the job. On a work queue it delivers all
// messages, on other streams those stored since the given time. The caller has checked
// that the name is free. A second call with the same arguments has no effect. If the server has no room for
// the consumer now, the error wraps job.ErrFull.
func (s *Space) BeginOn(ctx context.Context, name, consumer string, plan plans.PastPlan, since time.Time) error {
	on := plan.Plan.On
	if slices.Contains(layout.Streams(s.Namespace), on.Stream) {
		return fmt.Errorf("%w stream %s: it is this namespace's own", job.ErrInvalid, on.Stream)
	}
	info, err := s.onStream(ctx, on.Stream)
	if err != nil {
		return err
	}
	// The server accepts a filter that can never match, so check it here.
	subjects := info.Config.Subjects
	if len(subjects) > 0 && !slices.ContainsFunc(subjects, func(s string) bool { return collide(s, on.Subject) }) {
		return fmt.Errorf("%w subject %s: stream %s has no such subject: it has %s", job.ErrInvalid, on.Subject, on.Stream, strings.Join(subjects, ", "))
	}
	want := jetstream.ConsumerConfig{
		Durable: consumer, Description: fmt.Sprintf("starts cronce job %s of namespace %s", name, s.Namespace),
		FilterSubject: on.Subject, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: onWait, MaxDeliver: -1, MaxAckPending: maxOnPending,
		Metadata: map[string]string{onFromKey: plan.From.UTC().Format(time.RFC3339Nano)},
	}
	if info.Config.Retention == jetstream.WorkQueuePolicy || s.Stamp != nil { // the broker does not know the times of Stamp
		want.DeliverPolicy, want.OptStartTime = jetstream.DeliverAllPolicy, nil
	}
	if _, err = s.feed(ctx, on.Stream, want); wire.IsFull(err) {
		return noRoomError{err}
	}
	return err
}

// noRoomError is the refusal of a consumer for which the server has no room now. It also wraps job.ErrFull.
type noRoomError struct{ error }

func (e noRoomError) Unwrap() []error { return []error{job.ErrFull, e.error} }

// AdoptOn adds metadata to a consumer that an older version created: the start of its plan, and
// the time until which the runs of its messages are named as that version names them (see
// core.OnConsumer.SequenceOnlyUntil), because it may have published some of them.
func (s *Space) AdoptOn(ctx context.Context, c core.OnConsumer, plan plans.PastPlan) error {
	now, err := s.Time(ctx)
	if err != nil {
		return err
	}
	return s.Ask(ctx, "adopt consumer "+c.Name+" of stream "+c.Stream, s.API("CONSUMER.CREATE."+c.Stream+"."+c.Name), func(ctx context.Context) error {
		consumer, err := s.JS.Consumer(ctx, c.Stream, c.Name)
		if err != nil {
			return err
		}
		cfg := consumer.CachedInfo().Config
		if cfg.Metadata[onFromKey] != "" {
			return nil // another producer was faster
		}
		if cfg.Metadata == nil {
			cfg.Metadata = map[string]string{}
		}
		cfg.Metadata[onFromKey] = plan.From.UTC().Format(time.RFC3339Nano)
		cfg.Metadata[onSequenceOnlyKey] = now.Add(sequenceOnlyMargin).Truncate(sequenceOnlyStep).UTC().Format(time.RFC3339Nano)
		_, err = s.JS.UpdateConsumer(ctx, c.Stream, cfg)
		return err
	})
}

// OpenOn opens a consumer that OnConsumers returned.
func (s *Space) OpenOn(ctx context.Context, c core.OnConsumer) (*OnFeed, error) {
	consumer, err := s.consumer(ctx, c.Stream, c.Name)
	if err != nil {
		return nil, err
	}
	return &OnFeed{Feed: Feed{s, consumer}, of: c}, nil
}

// OnFeed delivers the messages that start a job.
type OnFeed struct {
	Feed

	of core.OnConsumer
}

// State reads the consumer's progress.
func (f *OnFeed) State(ctx context.Context) (core.OnState, error) {
	consumer, err := f.s.consumer(ctx, f.of.Stream, f.of.Name)
	if err != nil {
		return core.OnState{}, err
	}
	info := consumer.CachedInfo()
	return core.OnState{
		Created: info.Created, Pending: int(info.NumPending), Unacked: info.NumAckPending,
		AckedDelivery: info.AckFloor.Consumer, AckedSequence: info.AckFloor.Stream,
	}, nil
}

// collide reports whether a subject can match both patterns.
func collide(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		switch {
		case as[i] == ">" || bs[i] == ">":
			return true
		case as[i] != bs[i] && as[i] != "*" && bs[i] != "*":
			return false
		}
	}
	return len(as) == len(bs)
}

const (
	// removeAfter is the inactive threshold of a consumer that the server is to remove. The server adds up
	// to a second. removeWait is how long RemoveOn waits for that.
	removeAfter, removeWait = 50 * time.Millisecond, 3 * time.Second

	// removeSettle is how long a server may need to delete the files of a consumer that it no longer
	// reports. Meanwhile it cannot create another one with the same name.
	removeSettle = 250 * time.Millisecond
)

// RemoveOn removes a consumer that OnConsumers returned. It returns nil if the consumer or its stream
// does not exist. If the process is suspended before a request, or the network delivers it late, another
// producer may have created the consumer of the next plan under the same name by then. JetStream has no
// conditional delete. But it refuses to update a consumer to another start time, and each plan has its
// own. So RemoveOn updates the consumer in such a way that the server removes it.
//
// The consumers of a work queue have no start time, and one of another plan may be deleted. It loses no
// message, because the stream keeps what is not acked, and the producers create it again.
func (s *Space) RemoveOn(ctx context.Context, c core.OnConsumer) error {
	title := "remove consumer " + c.Name + " of stream " + c.Stream
	var updated bool
	var failed error
	for began := time.Now(); ; wire.Wait(ctx, removeAfter) {
		cfg, err := s.givenOn(ctx, c)
		switch {
		case errors.Is(err, errNotGiven):
			if updated {
				wire.Wait(ctx, removeSettle)
			}
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", title, err)
		case cfg.OptStartTime == nil:
			return s.deleteOn(ctx, title, c)
		case failed != nil:
			return failed
		case time.Since(began) > removeWait:
			return fmt.Errorf("%s: %w: a producer still takes messages from it; the server removes it after that", title, job.ErrUnknown)
		case cfg.InactiveThreshold != removeAfter:
			cfg.AckWait, cfg.InactiveThreshold = removeAfter, removeAfter // messages in flight would delay the removal
			failed = s.Ask(ctx, title, s.API("CONSUMER.CREATE."+c.Stream+"."+c.Name), func(ctx context.Context) error {
				_, err := s.JS.UpdateConsumer(ctx, c.Stream, cfg)
				return err
			})
			updated = failed == nil
		}
	}
}

// errNotGiven means that a consumer does not exist any more, or that another one has its name.
var errNotGiven = errors.New("the consumer was removed")

// givenOn reads the configuration of a consumer that OnConsumers returned. If it is gone, the error is
// errNotGiven.
func (s *Space) givenOn(ctx context.Context, c core.OnConsumer) (jetstream.ConsumerConfig, error) {
	found, err := s.consumer(ctx, c.Stream, c.Name)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return jetstream.ConsumerConfig{}, errNotGiven
	case err != nil:
		return jetstream.ConsumerConfig{}, err
	case !found.CachedInfo().Created.Equal(c.Created):
		return jetstream.ConsumerConfig{}, errNotGiven
	}
	return found.CachedInfo().Config, nil
}

// deleteOn deletes a consumer. A request that is not answered is repeated, and each one is sent only if
// the consumer is still the given one.
func (s *Space) deleteOn(ctx context.Context, title string, c core.OnConsumer) error {
	err := s.Ask(ctx, title, s.API("CONSUMER.DELETE."+c.Stream+"."+c.Name), func(ctx context.Context) error {
		found, err := s.JS.Consumer(ctx, c.Stream, c.Name)
		if err != nil || !found.CachedInfo().Created.Equal(c.Created) {
			return err
		}
		return s.JS.DeleteConsumer(ctx, c.Stream, c.Name)
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}
