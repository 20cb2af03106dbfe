package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// Burst is the result for slots that are all due in one second: how long after it the last slot
// was stored, and how long after it the last was acked.
type Burst struct {
	Slots            int
	Published, Acked time.Duration
}

// MeasureBurst measures a fleet that publishes and runs slots that are all due in one second,
// in a namespace that it creates and deletes. Each producer has its own connection. The first
// is the only worker, with default settings and a handler that does nothing. The time counts
// from the instant of the slots.
func MeasureBurst(ctx context.Context, connect Connect, namespace string, replicas, slots, producers int) (b Burst, err error) {
	err = inTime(slots, func(lead time.Duration) error {
		b, err = burst(ctx, connect, namespace, replicas, slots, producers, lead)
		return err
	})
	return b, err
}

func burst(ctx context.Context, connect Connect, namespace string, replicas, slots, producers int, lead time.Duration) (b Burst, err error) {
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
	case <-ran: // do not disturb the broker before
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
	return Burst{slots, info.State.LastTime.Sub(at), acked.Sub(at)}, nil
}

func (r *run) burst(ctx context.Context) error {
	var ours Burst
	var atOnce Rate
	what := fmt.Sprintf("burst: %d slots due in one second, producers: %d, one works", r.Slots, r.Producers)
	err := r.besideDrains(ctx, what, func(shape Shape) error {
		rate, err := r.alone(ctx, func(js jetstream.JetStream) (Rate, error) {
			return BurstCeiling(ctx, js, r.name("hand"), r.Replicas, r.Slots, shape)
		})
		if err != nil {
			return err
		}
		atOnce = best(atOnce, rate)
		b, err := MeasureBurst(ctx, r.Connect, r.name("burst"), r.Replicas, r.Slots, r.Producers)
		if err == nil && (ours.Acked == 0 || b.Acked < ours.Acked) {
			ours = b
		}
		return err
	})
	if err != nil {
		return err
	}
	res := less(Due, "ms", ms(ours.Acked), ms(r.ceiling.Took), r.Slots)
	res.Producers, res.Published, res.AtOnce = r.Producers, ms(ours.Published), ms(atOnce.Took)
	return r.result(res)
}
