package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

const (
	// onWait is after how long the server delivers a message again that is not acked.
	onWait = 30 * time.Second

	maxOnPending = 10_000

	// bareMargin is how far in the future the end of bare names is set, and
	// bareStep what it is rounded to: all producers, which see it within half a minute,
	// agree on one before it comes.
	bareMargin, bareStep = 2 * time.Minute, time.Minute
)

// Metadata of a consumer that takes the messages which start a job.
const (
	onFromKey = "cronce_from" // the beginning of its plan
	onBareKey = "cronce_bare" // see job.OnConsumer.Bare
)

// OnConsumers are the names of the durable consumers that take the messages which start
// a job of a namespace. One of them is in use; the other one is for the next plan, after
// an edit, while the first drains. They are two because permissions name them: a login
// that takes the messages of one job has no right over other consumers of the stream.
// No name holds what stands between its parts.
func OnConsumers(namespace, name string) []string {
	first := "cronce_" + namespace + "=" + name
	return []string{first, first + "=2"}
}

// OnConsumers returns the consumers that take messages of the stream for the job.
// job.ErrNotFound: there is no such stream.
func (s *Store) OnConsumers(ctx context.Context, stream, name string) ([]core.OnConsumer, error) {
	var found []core.OnConsumer
	var denied error
	names := OnConsumers(s.namespace, name)
	// While an edit is followed, the consumer of the new plan is made before the old one
	// is removed. Where neither is found, the first may have been made meanwhile.
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
			denied = err // a login from before there was a second one works until an edit
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

func errNoStream(stream string) error {
	return fmt.Errorf("stream %s: %w: create it, or mend the job's on.stream", stream, job.ErrNotFound)
}

func (s *Store) onConsumer(ctx context.Context, stream, consumer string) (core.OnConsumer, error) {
	info, err := s.consumerInfo(ctx, stream, consumer)
	if err != nil {
		return core.OnConsumer{}, err
	}
	c := core.OnConsumer{Stream: stream, Name: consumer, On: job.On{Stream: stream, Subject: filters(info.Config)}, Created: info.Created}
	c.From, _ = time.Parse(time.RFC3339Nano, info.Config.Metadata[onFromKey])
	c.Bare, _ = time.Parse(time.RFC3339Nano, info.Config.Metadata[onBareKey])
	return c, nil
}

func (s *Store) consumerInfo(ctx context.Context, stream, consumer string) (info *jetstream.ConsumerInfo, err error) {
	err = s.ask(ctx, "look for consumer "+consumer+" of "+title(stream), s.api("CONSUMER.INFO."+stream+"."+consumer), func(ctx context.Context) error {
		c, err := s.js.Consumer(ctx, stream, consumer)
		if err == nil {
			info = c.CachedInfo()
		}
		return err
	})
	return info, err
}

func (s *Store) onStream(ctx context.Context, stream string) (info *jetstream.StreamInfo, err error) {
	err = s.ask(ctx, "look for stream "+stream, s.api("STREAM.INFO."+stream), func(ctx context.Context) error {
		found, err := s.js.Stream(ctx, stream)
		if err == nil {
			info = found.CachedInfo()
		}
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = errNoStream(stream)
	}
	return info, err
}

// BeginOn creates the consumer of a plan of the job. It delivers what the stream stored
// from since on, or all of a work queue. The caller has found that the name is free.
// Creating the same consumer twice makes one.
func (s *Store) BeginOn(ctx context.Context, name, consumer string, plan core.PastPlan, since time.Time) error {
	on := plan.Plan.On
	if slices.Contains(Streams(s.namespace), on.Stream) {
		return fmt.Errorf("%w stream %s: it is this namespace's own", job.ErrInvalid, on.Stream)
	}
	info, err := s.onStream(ctx, on.Stream)
	if err != nil {
		return err
	}
	// The server accepts a filter that nothing can ever match.
	subjects := info.Config.Subjects
	if len(subjects) > 0 && !slices.ContainsFunc(subjects, func(s string) bool { return collide(s, on.Subject) }) {
		return fmt.Errorf("%w subject %s: stream %s has none of it, but %s", job.ErrInvalid, on.Subject, on.Stream, strings.Join(subjects, ", "))
	}
	want := jetstream.ConsumerConfig{
		Durable: consumer, Description: fmt.Sprintf("starts cronce job %s of namespace %s", name, s.namespace),
		FilterSubject: on.Subject, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: onWait, MaxDeliver: -1, MaxAckPending: maxOnPending,
		Metadata: map[string]string{onFromKey: plan.From.UTC().Format(time.RFC3339Nano)},
	}
	if info.Config.Retention == jetstream.WorkQueuePolicy {
		want.DeliverPolicy, want.OptStartTime = jetstream.DeliverAllPolicy, nil
	}
	_, err = s.feed(ctx, on.Stream, want)
	return err
}

// AdoptOn has a consumer that an older program made say which plan it is for, and up to
// when messages have bare names: those may have been published under them.
func (s *Store) AdoptOn(ctx context.Context, c core.OnConsumer, plan core.PastPlan) error {
	now, err := s.Time(ctx)
	if err != nil {
		return err
	}
	return s.ask(ctx, "adopt consumer "+c.Name+" of stream "+c.Stream, s.api("CONSUMER.CREATE."+c.Stream+"."+c.Name), func(ctx context.Context) error {
		consumer, err := s.js.Consumer(ctx, c.Stream, c.Name)
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
		cfg.Metadata[onBareKey] = now.Add(bareMargin).Truncate(bareStep).UTC().Format(time.RFC3339Nano)
		_, err = s.js.UpdateConsumer(ctx, c.Stream, cfg)
		return err
	})
}

// OpenOn opens a consumer that OnConsumers found.
func (s *Store) OpenOn(ctx context.Context, c core.OnConsumer) (*OnFeed, error) {
	f := OnFeed{Feed: Feed{s: s}, of: c}
	err := s.ask(ctx, "look for consumer "+c.Name+" of stream "+c.Stream, s.api("CONSUMER.INFO."+c.Stream+"."+c.Name), func(ctx context.Context) (err error) {
		f.consumer, err = s.js.Consumer(ctx, c.Stream, c.Name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &f, nil
}

// OnFeed hands out the messages that start a job.
type OnFeed struct {
	Feed

	of core.OnConsumer
}

// State asks how far the consumer has come.
func (f *OnFeed) State(ctx context.Context) (core.OnState, error) {
	info, err := f.s.consumerInfo(ctx, f.of.Stream, f.of.Name)
	if err != nil {
		return core.OnState{}, err
	}
	return core.OnState{
		Created: info.Created, Pending: int(info.NumPending), Unacked: info.NumAckPending,
		Delivered: info.AckFloor.Consumer, Floor: info.AckFloor.Stream,
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

// Off removes a consumer that took the messages which started a job. One that is not
// there, or whose stream is gone, is no error.
func (s *Store) Off(ctx context.Context, stream, consumer string) error {
	err := s.ask(ctx, "remove consumer "+consumer+" of stream "+stream, s.api("CONSUMER.DELETE."+stream+"."+consumer), func(ctx context.Context) error {
		return s.js.DeleteConsumer(ctx, stream, consumer)
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}
