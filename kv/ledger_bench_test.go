package kv_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// BenchmarkLedger compares a ledger of a thousand records with one of a million. It
// measures concurrent claims with their outcomes, and the listing of one job's slots, a
// hundred per job.
func BenchmarkLedger(b *testing.B) {
	for _, records := range []int{1000, 1_000_000} {
		store, err := kv.Open(b.Context(), natstest.Run(b).JetStream(), kv.Options{})
		if err != nil {
			b.Fatal(err)
		}
		ledger := store.Ledger()
		fillLedger(b, ledger, records)
		b.Run(fmt.Sprintf("claims/%d", records), func(b *testing.B) { benchmarkClaims(b, ledger) })
		b.Run(fmt.Sprintf("newest/%d", records), func(b *testing.B) { benchmarkNewest(b, ledger, records/slotsOfBench) })
		b.Run(fmt.Sprintf("list/%d", records), func(b *testing.B) { benchmarkList(b, ledger, records/slotsOfBench) })
	}
}

const (
	writersOfBench = 64
	slotsOfBench   = 100 // per job
)

var benchEpoch = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func benchRecord(name string, n int, state job.State, attempt string) job.Record {
	at := benchEpoch.Add(time.Duration(n) * time.Minute)
	return job.Record{
		Slot: job.NewSlot(name, at), Queue: "default", State: state, Attempt: 1, MaxAttempts: 3, Node: "worker-1-1763700000-abcdefgh",
		Attempts: []job.Attempt{{Node: "worker-1-1763700000-abcdefgh", Started: at}}, Nonce: fmt.Sprint(name, n, attempt),
	}
}

func fillLedger(b *testing.B, ledger *kv.Ledger, records int) {
	jobs := records / slotsOfBench
	kvtest.Fill(b, ledger, records, func(i int) job.Record {
		return benchRecord(fmt.Sprintf("customer-report-%08d", i%jobs), i/jobs, job.Succeeded, "")
	})
}

// claimed numbers the slots of all runs, so that each slot is claimed once.
var claimed atomic.Int64

func benchmarkClaims(b *testing.B, ledger *kv.Ledger) {
	b.SetParallelism(writersOfBench)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := int(claimed.Add(1))
			fence, err := ledger.Write(context.Background(), benchRecord("claimed", n, job.Running, "claim"), 0)
			if err == nil {
				_, err = ledger.Write(context.Background(), benchRecord("claimed", n, job.Succeeded, "outcome"), fence)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// benchmarkNewest reads the ten newest slots of a job whose records are spread over the
// ledger, and of all jobs.
func benchmarkNewest(b *testing.B, ledger *kv.Ledger, jobs int) {
	const want = 10
	for _, name := range []string{fmt.Sprintf("customer-report-%08d", jobs/2), ""} {
		b.Run("job="+name, func(b *testing.B) {
			for b.Loop() {
				found := 0
				for _, err := range ledger.Newest(b.Context(), name) {
					if err != nil {
						b.Fatal(err)
					}
					if found++; found == want {
						break
					}
				}
				if found != want {
					b.Fatalf("%d slots, want %d", found, want)
				}
			}
		})
	}
}

func benchmarkList(b *testing.B, ledger *kv.Ledger, jobs int) {
	name := fmt.Sprintf("customer-report-%08d", jobs/2)
	for b.Loop() {
		found := 0
		for _, err := range ledger.List(b.Context(), kv.ListFilter{Job: name}) {
			if err != nil {
				b.Fatal(err)
			}
			found++
		}
		if found != slotsOfBench {
			b.Fatalf("%d slots of the job, want %d", found, slotsOfBench)
		}
	}
}
