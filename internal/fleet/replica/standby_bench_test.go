package replica_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// BenchmarkPublish measures how fast the slots of one second are stored, by one producer and by eight,
// and how many copies they publish.
func BenchmarkPublish(b *testing.B) {
	for _, producers := range []int{1, 8} {
		b.Run(fmt.Sprint(producers), func(b *testing.B) { benchmarkPublish(b, producers, 20_000) })
	}
}

func benchmarkPublish(b *testing.B, producers, jobs int) {
	srv := natstest.Run(b)
	store := kvtest.Open(b, srv.JetStream(), kv.Options{})
	for i := range jobs {
		d, _, err := plans.Upsert(nil, job.Job{Name: fmt.Sprint("job", i), Schedule: "*/4 * * * * *"}, "operator", "bench", true)
		if err != nil {
			b.Fatal(err)
		}
		d.Nonce = d.Job.Name
		if _, err := store.Jobs().Write(b.Context(), d, 0); err != nil {
			b.Fatal(err)
		}
	}
	messages := make(chan *nats.Msg, 1<<20)
	nc := srv.Conn()
	if _, err := nc.ChanSubscribe("cronce.slot.>", messages); err != nil {
		b.Fatal(err)
	}
	for i := range producers {
		newMember(b, srv, fmt.Sprint("n", i), 0)
	}
	seen := map[string]bool{}
	var slot time.Time
	var took time.Duration
	published := 0
	const warm = 2
	for range warm + max(b.N, 3) {
		for m := range messages {
			id, err := job.ParseSlotID(m.Header.Get(core.HeaderSlot))
			if err != nil {
				b.Fatal(err)
			}
			if id.At.After(slot) {
				slot, published = id.At, 0
				clear(seen)
			}
			published++
			if id.At.Equal(slot) {
				seen[m.Header.Get(core.HeaderSlot)] = true
			}
			if len(seen) == jobs {
				took = time.Since(slot)
				break
			}
		}
		// The messages until the next burst are copies.
		for quiet := time.After(2 * time.Second); quiet != nil; {
			select {
			case <-messages:
				published++
			case <-quiet:
				quiet = nil
			}
		}
		b.Logf("%d producers: %d slots stored in %v, %.0f a second; %.1f %% copies", producers, jobs, took,
			float64(jobs)/took.Seconds(), 100*float64(published-jobs)/float64(jobs))
	}
	b.ReportMetric(float64(jobs)/took.Seconds(), "slots/s")
	b.ReportMetric(float64(published)/float64(jobs), "copies/slot")
}
