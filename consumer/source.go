package consumer

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Source hands out the messages of one durable consumer of the queue. kv.Source
// satisfies it.
type Source interface {
	// Listen opens lanes, each with at most one request at a time. It is called once. It
	// calls message with each message that arrives on a lane, whether its request is still
	// open or not, and ended when a lane's request is over before it was served in full,
	// with an error if a further request will not help. Neither blocks.
	Listen(lanes int, message func(lane int, m jetstream.Msg), ended func(lane int, err error)) error

	// Ask requests up to n messages on a lane for as long as d, and does not wait.
	Ask(lane, n int, d time.Duration) error

	// Leave takes all requests back, and returns when message has been called with what was
	// delivered before.
	Leave(ctx context.Context) error
}

// Open returns a source. It is called again when the source fails, because the durable
// consumer may have been deleted, and from time to time if there is none now (nil).
// job.ErrMismatch is for good.
type Open func(ctx context.Context) (Source, error)
