package api

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/micro"
	"golang.org/x/sync/semaphore"

	"github.com/cronce-io/cronce/job"
)

// quiet is a request whose answer is dropped.
type quiet struct{ micro.Request }

func (quiet) Data() []byte                                            { return nil }
func (quiet) Headers() micro.Headers                                  { return nil }
func (quiet) Error(string, string, []byte, ...micro.RespondOpt) error { return nil }

// NATS delivers what it had queued also after the service has been stopped.
func TestRequestsDoNotStartAfterStop(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &server{ctx: ctx, limit: semaphore.NewWeighted(maxRunning)}
	var started atomic.Int64
	h := s.handler(order{run: func(context.Context, *server, micro.Request) (any, error) {
		started.Add(1)
		return nil, job.ErrUnknown
	}})
	for range 100 {
		h.Handle(quiet{})
	}
	s.running.Wait()
	if n := started.Load(); n > 0 || !s.limit.TryAcquire(maxRunning) {
		t.Errorf("%d requests started, want none, and none holds a place", n)
	}
}
