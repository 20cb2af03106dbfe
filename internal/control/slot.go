package control

import (
	"context"
	"iter"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Slots is the stream of slots to run; *kv.Slots is one.
type Slots interface {
	Waiting(ctx context.Context, f kv.WaitingFilter) iter.Seq2[kv.WaitingSlot, error]
	Publish(queue string, m job.Message, payload []byte) (wait func(context.Context) (duplicate bool, err error), err error)
}

// pause waits, and reports the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
