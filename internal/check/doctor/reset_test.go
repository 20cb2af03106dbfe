package doctor

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestForcedResetNeverMovesTheWatermarkForward(t *testing.T) {
	t.Parallel()
	store := kvtest.Open(t, natstest.Run(t).JetStream(), kv.Options{})
	revision := uint64(0)
	for age, want := range map[time.Duration]time.Duration{
		time.Minute:                job.DefaultHorizon,
		3 * job.DefaultHorizon / 2: 3 * job.DefaultHorizon / 2,
	} {
		f := healthy()
		f.Watermark = exchange.Watermark{Time: now.Add(-age), Revision: 7, Nonce: age.String()}
		var err error
		if f.WatermarkRevision, err = store.Watermark().Write(t.Context(), f.Watermark, revision); err != nil {
			t.Fatal(err)
		}
		done, err := ResetWatermark(t.Context(), store, f, "alice", "reset "+age.String(), true)
		if got := now.Sub(done.To.Time); err != nil || got != want {
			t.Errorf("a watermark of %v ago is set to %v ago, %v, want %v ago", age, got, err, want)
		}
		if _, revision, err = store.Watermark().Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
