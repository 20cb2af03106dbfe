package consumer

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Source hands out the messages of one durable consumer of the queue. kv.Source
// satisfies it.
type Source interface {
	// Listen opens lanes. Each lane has at most one open request. Listen is called once.
	//
	// The source calls message for each message that arrives on a lane, even after the request
	// has ended. It calls ended when a request ends before all its messages have arrived. err
	// is not nil if a further request would fail too. message and ended do not block.
	Listen(lanes int, message func(lane int, m jetstream.Msg), ended func(lane int, err error)) error

	// Ask requests up to n messages on a lane for as long as d, and does not wait.
	Ask(lane, n int, d time.Duration) error

	// Leave cancels all requests. It returns after message was called for everything that the
	// broker had delivered before.
	Leave(ctx context.Context) error
}

// Open returns a source, or nil if the source does not exist now; then the consumer calls Open
// again after a while. The consumer also calls it again when a source fails, since the durable
// consumer may have been deleted. It does not call it again after job.ErrMismatch.
type Open func(ctx context.Context) (Source, error)
