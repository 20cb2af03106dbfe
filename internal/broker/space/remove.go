package space

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/job"
)

// Remove deletes the streams and buckets of the namespace. It does not delete the consumers on other
// streams whose messages start jobs. It is for namespaces that were created for a trial or a
// measurement. A missing stream is not an error.
func Remove(ctx context.Context, js jetstream.JetStream, namespace string) error {
	s, err := newSpace(ctx, js, Options{Namespace: namespace})
	if err != nil {
		return err
	}
	failed := s.removeAll(ctx)
	// A process that was interrupted while it created a stream may have left its request in
	// flight. So remove everything a second time.
	if failed == nil && wire.Wait(ctx, settleFor) {
		failed = s.removeAll(ctx)
	}
	return failed
}

// settleFor is how long a request may stay in flight after its sender has ended.
const settleFor = 250 * time.Millisecond

func (s *Space) removeAll(ctx context.Context) error {
	var failed []error
	for _, cfg := range layout.Configs(s.Namespace, job.Settings{}, true) {
		err := s.Ask(ctx, "remove "+layout.Title(cfg.Name), s.API("STREAM.DELETE."+cfg.Name), func(ctx context.Context) error {
			return s.JS.DeleteStream(ctx, cfg.Name)
		})
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
