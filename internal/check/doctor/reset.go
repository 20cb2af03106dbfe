package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Reset is the watermark before and after a reset.
type Reset struct{ From, To exchange.Watermark }

// ErrRight says that the watermark needs no reset.
var ErrRight = errors.New("the watermark is neither ahead of the broker's clock nor of the registry: it is not reset")

// ErrNewer says that the watermark is of a newer format.
var ErrNewer = errors.New("the watermark was written by a newer version of cronce: it is not reset")

// ResetWatermark resets a watermark that Check finds wrong. The package comment says what it
// writes, and why. The error is ErrRight if the watermark is right, and ErrNewer if it is
// of a newer format. With force, ResetWatermark resets these too, to the broker's time less the
// horizon, but never forward. The error is job.ErrConflict if the watermark was moved since the
// facts were gathered, and job.ErrUnknown if the broker did not answer.
func ResetWatermark(ctx context.Context, store *kv.Store, f Facts, by, nonce string, force bool) (Reset, error) {
	what, _ := f.wrongWatermark()
	switch {
	case what != "" || force:
	case errors.Is(f.WatermarkErr, job.ErrVersion):
		return Reset{}, fmt.Errorf("%w: %w", ErrNewer, f.WatermarkErr)
	default:
		return Reset{}, ErrRight
	}
	to, back := f.Watermark.Time, f.Now.Add(-f.Survey.Settings.Horizon)
	switch {
	case f.WatermarkErr != nil:
		to = back
	case what == "" || to.Sub(f.Now) > maxAhead:
		to = plans.Earlier(to, back)
	}
	next := exchange.Watermark{Time: to.UTC(), RegistryTime: to.UTC(), Node: by, Nonce: nonce, Extra: f.Watermark.Extra}
	if _, err := store.Watermark().Write(ctx, next, f.WatermarkRevision); err != nil {
		return Reset{}, fmt.Errorf("reset the watermark: %w", err)
	}
	return Reset{f.Watermark, next}, nil
}
