package kv

import (
	"context"
	"errors"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go/jetstream"
)

// Remove deletes everything that the namespace has on the broker. It is for namespaces
// that were created for a trial or a measurement. What does not exist is no error.
func Remove(ctx context.Context, js jetstream.JetStream, namespace string) error {
	s, err := newStore(ctx, js, Options{Namespace: namespace})
	if err != nil {
		return err
	}
	failed := s.removeAll(ctx)
	// An interrupted request to create a stream may still have been in flight.
	if failed == nil && wait(ctx, settleFor) {
		failed = s.removeAll(ctx)
	}
	return failed
}

// settleFor is how long a request may stay in flight after its sender has ended.
const settleFor = 250 * time.Millisecond

func (s *Store) removeAll(ctx context.Context) error {
	var failed []error
	for _, cfg := range layout(s.namespace, job.Settings{}, true) {
		err := s.ask(ctx, "remove "+title(cfg.Name), s.api("STREAM.DELETE."+cfg.Name), func(ctx context.Context) error {
			return s.js.DeleteStream(ctx, cfg.Name)
		})
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
