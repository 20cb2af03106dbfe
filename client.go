package cronce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/job"
)

// Client returns a client that shares the connection of the Scheduler: it triggers runs, waits
// for outcomes, changes jobs and answers questions. It works before Run, during it and after it,
// as long as the connection does. Its orders carry the name of the host, or the name that
// WithNodeName sets.
func (s *Scheduler) Client() *client.Client { return s.client }

func newClient(s *Scheduler) *client.Client {
	host := s.cfg.host
	if host == "" {
		host, _ = os.Hostname() // it is only a name for readers, and may be empty
	}
	return client.Attach(attach.Of(s.conn, s.store, attach.Options{Operator: host, Logger: s.cfg.logger, Joined: s.joined}))
}

// joinInterval is how often joined checks whether another replica has written the job to the
// registry.
const joinInterval = 200 * time.Millisecond

// joined waits until this replica or another has written the job to the registry, if the job has a
// handler here.
func (s *Scheduler) joined(ctx context.Context, name string) error {
	if s.handled.handler(name) == nil {
		return nil
	}
	for s.current() == nil {
		if _, _, err := s.store.Jobs().Read(ctx, name); !errors.Is(err, job.ErrNotFound) {
			return nil //nolint:nilerr // the caller reads it again
		}
		select {
		case <-s.begun:
		case <-time.After(joinInterval):
		case <-ctx.Done():
			return fmt.Errorf("%w: Run of this scheduler, which writes the job to the registry, has not begun: %w", job.ErrNotFound, context.Cause(ctx))
		}
	}
	if err := s.current().Joined(ctx, name); !errors.Is(err, job.ErrStopping) {
		return err
	}
	return nil
}

// TriggerOptions describe a run that Trigger orders.
type TriggerOptions = client.TriggerOptions

// Trigger orders one run of a job: it is Client().Trigger. Its Run can wait for the outcome.
//
// If the job has a handler here and is not in the registry yet, Trigger first waits until Run has
// written it there. So Trigger can be called at any time. Before Run, call it from another goroutine
// or with a context that ends.
func (s *Scheduler) Trigger(ctx context.Context, name string, o TriggerOptions) (client.Run, error) {
	return s.client.Trigger(ctx, name, o)
}
