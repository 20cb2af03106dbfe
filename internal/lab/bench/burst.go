package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/job"
)

// burst is the result for slots that are all due at one instant: how long after that instant the
// last slot was stored, and how long after it the last slot was acked.
type burst struct{ published, acked time.Duration }

// measureBurst measures a fleet that publishes and runs slots that are all due at one instant, in a
// namespace that it creates and deletes. Each producer has its own connection. The first producer
// is also the only worker, with default settings and a handler that does nothing.
func measureBurst(ctx context.Context, connect Connect, namespace string, replicas, slots, producers int, lead time.Duration) (b burst, err error) {
	var runs atomic.Int64
	ran := make(chan struct{})
	f, err := startFleet(ctx, connect, namespace, replicas, producers, func(context.Context, job.Run) error {
		if runs.Add(1) == int64(slots) {
			close(ran)
		}
		return nil
	})
	defer func() { err = errors.Join(err, f.stop()) }()
	if err != nil {
		return b, err
	}
	at, err := f.plan(ctx, slots, job.Job{Overlap: job.OverlapAllow}, lead)
	if err != nil {
		return b, err
	}
	clock, err := f.offset()
	if err != nil {
		return b, err
	}
	stream, err := f.js.Stream(ctx, namespace+"_slots")
	if err != nil {
		return b, err
	}
	select {
	case <-ran: // polling before that would disturb the broker
	case <-f.ctx.Done():
		return b, context.Cause(f.ctx)
	}
	if err := Empty(f.ctx, stream); err != nil {
		return b, err
	}
	acked := time.Now().Add(clock)
	info, err := stream.Info(ctx)
	if err != nil {
		return b, err
	}
	return burst{info.State.LastTime.Sub(at), acked.Sub(at)}, nil
}

func (r *run) burst(ctx context.Context) error {
	var ours burst
	var atOnce Rate
	what := fmt.Sprintf("burst: %d slots due in one second, producers: %d, workers: 1", r.Slots, r.Producers)
	err := r.besideDrains(ctx, what, func(shape Shape) error {
		rate, err := BurstCeiling(ctx, r.Connect, r.name("hand"), r.Replicas, r.Slots, shape)
		if err != nil {
			return err
		}
		atOnce = best(atOnce, rate)
		return inTime(r.Slots, func(_ int, lead time.Duration) error {
			b, err := measureBurst(ctx, r.Connect, r.name("burst"), r.Replicas, r.Slots, r.Producers, lead)
			if err == nil && (ours.acked == 0 || b.acked < ours.acked) {
				ours = b
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	res := less(Due, "ms", ms(ours.acked), ms(r.ceiling.Took), r.Slots)
	res.Producers, res.Published, res.AtOnce = r.Producers, ms(ours.published), ms(atOnce.Took)
	return r.result(res)
}
