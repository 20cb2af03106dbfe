package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Reset is what ResetWatermark did.
type Reset struct{ From, To core.Watermark }

// ErrRight says that the watermark needs no reset.
var ErrRight = errors.New("the watermark is neither ahead of the broker's clock nor of the registry: it is not reset")

// ErrNewer says that the watermark is of a newer format.
var ErrNewer = errors.New("the watermark was written by a newer version of cronce: it is not reset")

// ResetWatermark puts back a watermark that Check finds wrong: see the package's
// comment for what it writes, and why. One that is right is ErrRight, one of a newer
// format ErrNewer; with force either is put back by the horizon. One that was moved since
// the facts were gathered is job.ErrConflict; job.ErrUnknown: look again.
func ResetWatermark(ctx context.Context, store *kv.Store, f Facts, who, nonce string, force bool) (Reset, error) {
	what, _ := f.wrongWatermark()
	switch {
	case what != "" || force:
	case errors.Is(f.WatermarkErr, job.ErrVersion):
		return Reset{}, fmt.Errorf("%w: %w", ErrNewer, f.WatermarkErr)
	default:
		return Reset{}, ErrRight
	}
	to := f.Watermark.Time
	if what == "" || f.WatermarkErr != nil || to.Sub(f.Now) > ahead {
		to = f.Now.Add(-f.Survey.Settings.Horizon)
	}
	next := core.Watermark{Time: to.UTC(), RegistryTime: to.UTC(), Node: who, Nonce: nonce, Extra: f.Watermark.Extra}
	if _, err := store.Watermark().Write(ctx, next, f.WatermarkRevision); err != nil {
		return Reset{}, fmt.Errorf("reset the watermark: %w", err)
	}
	return Reset{f.Watermark, next}, nil
}
