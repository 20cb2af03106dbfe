package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// onWait is after how long a message comes again that nobody has made a slot of.
	onWait = 30 * time.Second

	maxOnPending = 10_000
)

// OnConsumer is the name of the durable consumer that takes the messages which start
// a job of a namespace. No name holds what stands between the two.
func OnConsumer(namespace, name string) string { return "cronce_" + namespace + "=" + name }

// On opens the messages that start e's job: those that its stream stored after the
// job came to be started by them, each handed to one of all who ask. Of a work queue,
// which knows no such beginning, all. A subject that an edit has changed is changed
// here too. job.ErrNotFound: there is no such stream.
func (s *Store) On(ctx context.Context, e job.Entry) (*Feed, error) {
	on := e.Job.On
	if slices.Contains(Streams(s.namespace), on.Stream) {
		return nil, fmt.Errorf("%w stream %s: it is this namespace's own", job.ErrInvalid, on.Stream)
	}
	var stream jetstream.Stream
	err := s.ask(ctx, "look for stream "+on.Stream, s.api("STREAM.INFO."+on.Stream), func(ctx context.Context) (err error) {
		stream, err = s.js.Stream(ctx, on.Stream)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("stream %s: %w: create it, or mend the job's on.stream", on.Stream, job.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	// The server takes a filter that nothing can ever match, and nobody would be told.
	subjects := stream.CachedInfo().Config.Subjects
	if len(subjects) > 0 && !slices.ContainsFunc(subjects, func(s string) bool { return collide(s, on.Subject) }) {
		return nil, fmt.Errorf("%w subject %s: stream %s has none of it, but %s", job.ErrInvalid, on.Subject, on.Stream, strings.Join(subjects, ", "))
	}
	since := e.OnSince()
	want := jetstream.ConsumerConfig{
		Durable: OnConsumer(s.namespace, e.Job.Name), Description: fmt.Sprintf("starts cronce job %s of namespace %s", e.Job.Name, s.namespace),
		FilterSubject: on.Subject, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: onWait, MaxDeliver: -1, MaxAckPending: maxOnPending,
	}
	if stream.CachedInfo().Config.Retention == jetstream.WorkQueuePolicy {
		want.DeliverPolicy, want.OptStartTime = jetstream.DeliverAllPolicy, nil
	}
	f, err := s.feed(ctx, on.Stream, want)
	if err != nil {
		return nil, err
	}
	return s.follow(ctx, on, f)
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

// follow has the consumer take the subject that the job names now.
func (s *Store) follow(ctx context.Context, on job.On, f *Feed) (*Feed, error) {
	found := f.consumer.CachedInfo().Config
	if filters(found) == on.Subject {
		return f, nil
	}
	found.FilterSubject, found.FilterSubjects = on.Subject, nil
	err := s.ask(ctx, "change consumer "+found.Durable+" of stream "+on.Stream, s.api("CONSUMER.CREATE."+on.Stream+"."+found.Durable), func(ctx context.Context) (err error) {
		f.consumer, err = s.js.UpdateConsumer(ctx, on.Stream, found)
		return err
	})
	return f, err
}

// Off removes the consumer that took the messages which started a job. One that is
// not there, or whose stream is gone, is no error.
func (s *Store) Off(ctx context.Context, stream, name string) error {
	consumer := OnConsumer(s.namespace, name)
	err := s.ask(ctx, "remove consumer "+consumer+" of stream "+stream, s.api("CONSUMER.DELETE."+stream+"."+consumer), func(ctx context.Context) error {
		return s.js.DeleteConsumer(ctx, stream, consumer)
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}
