package kv_test

import (
	"fmt"
	"sync"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/kv"
)

// BenchmarkClaimAndOutcome measures slots, each with a claim and then an outcome, while so
// many are open at once: in groups and singly, on storage that syncs each write and on
// storage that does not.
func BenchmarkClaimAndOutcome(b *testing.B) {
	for _, synced := range []bool{true, false} {
		for _, open := range []int{1, 20, 250, 1000} {
			for _, grouped := range []bool{true, false} {
				b.Run(fmt.Sprintf("synced=%t/open=%d/grouped=%t", synced, open, grouped), func(b *testing.B) {
					srv := natstest.Run(b, func(o *natsserver.Options) { o.SyncAlways = synced })
					store, err := kv.Open(b.Context(), srv.JetStream(), kv.Options{})
					if err == nil && !grouped {
						store, err = withoutBatches(b, srv.JetStream())
					}
					if err != nil {
						b.Fatal(err)
					}
					b.ResetTimer()
					claimAndComplete(b, store.Ledger(), open)
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "slots/s")
				})
			}
		}
	}
}

// withoutBatches opens the namespace with a ledger that denies batches.
func withoutBatches(b *testing.B, js jetstream.JetStream) (*kv.Store, error) {
	stream, err := js.Stream(b.Context(), "KV_cronce_ledger")
	if err != nil {
		return nil, err
	}
	config := stream.CachedInfo().Config
	config.AllowAtomicPublish = false
	if _, err := js.UpdateStream(b.Context(), config); err != nil {
		return nil, err
	}
	return kv.Open(b.Context(), js, kv.Options{})
}

// claimAndComplete writes b.N slots, of which at most open are open at once.
func claimAndComplete(b *testing.B, ledger *kv.Ledger, open int) {
	permits := make(chan struct{}, open)
	var slots sync.WaitGroup
	for i := range b.N {
		permits <- struct{}{}
		slots.Add(1)
		r := kvtest.Record(i, "claim")
		ledger.Send(b.Context(), r, 0, func(revision uint64, err error) {
			if err != nil {
				b.Error(err)
			}
			r.Nonce = "outcome"
			ledger.Send(b.Context(), r, revision, func(_ uint64, err error) {
				if err != nil {
					b.Error(err)
				}
				<-permits
				slots.Done()
			})
		})
	}
	slots.Wait()
}
