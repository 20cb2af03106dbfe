package kv

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go/jetstream"
)

// Remove deletes everything that the namespace has on the broker: for what was
// made to try or to measure something. What is not there is no error.
func Remove(ctx context.Context, js jetstream.JetStream, namespace string) error {
	s, err := newStore(js, Options{Namespace: namespace})
	if err != nil {
		return err
	}
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
