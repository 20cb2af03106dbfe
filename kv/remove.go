package kv

import (
	"context"
	"errors"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go/jetstream"
)

// Remove deletes everything that the namespace has on the broker: for what was
// made to try or to measure something. What is not there is no error.
func Remove(ctx context.Context, js jetstream.JetStream, namespace string) error {
	s, err := newStore(ctx, js, Options{Namespace: namespace})
	if err != nil {
		return err
	}
	failed := s.removeAll(ctx)
	// A request to create, whose asker was interrupted, may still have been under way.
	if failed == nil && wait(ctx, settleFor) {
		failed = s.removeAll(ctx)
	}
	return failed
}

// settleFor is how long a request may be under way to the broker whose asker is gone.
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
