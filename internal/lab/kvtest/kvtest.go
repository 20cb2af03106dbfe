// Package kvtest opens stores in tests, and has values for them.
package kvtest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Open opens the store of a namespace, and creates what is missing.
func Open(tb testing.TB, js jetstream.JetStream, o kv.Options) *kv.Store {
	tb.Helper()
	s, err := kv.Open(tb.Context(), js, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

var at = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// Record returns the record of a running slot of the job report.
func Record(minute int, nonce string) job.Record {
	return job.Record{
		Slot: job.NewSlot("report", at.Add(time.Duration(minute)*time.Minute)), Queue: "default", State: job.Running,
		Attempt: 1, Node: "n1", Nonce: nonce, Attempts: []job.Attempt{{Number: 1, Node: "n1", Started: at}},
	}
}

// Node returns the record of a live node.
func Node(name, nonce string) exchange.Node {
	return exchange.Node{Name: name, State: exchange.NodeAlive, Started: at, Lease: 20 * time.Second, Worker: true, Nonce: nonce}
}

// Definition returns the definition of a job.
func Definition(name, nonce string) plans.Definition {
	return plans.Definition{Job: job.Job{Name: name, Schedule: "0 7 * * *"}.WithDefaults(), Owner: "file", Node: "n1", Nonce: nonce}
}

// Ledger has the method of a ledger that Fill calls.
type Ledger interface {
	Write(context.Context, job.Record, uint64) (uint64, error)
}

// Fill writes n new records concurrently, roughly in the order of i. Every tenth record overwrites
// its claim, so that the stream has gaps, as a real one has. Benchmarks use Fill for large ledgers.
func Fill(tb testing.TB, l Ledger, n int, record func(i int) job.Record) {
	tb.Helper()
	const writers = 256
	var group sync.WaitGroup
	var next atomic.Int64
	for range writers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				r, revision := record(i), uint64(0)
				if i%10 == 0 {
					claim := r
					claim.State, claim.Nonce, claim.Finished = job.Running, r.Nonce+"-claim", time.Time{}
					var err error
					if revision, err = l.Write(context.Background(), claim, 0); err != nil {
						tb.Error(err)
						return
					}
				}
				if _, err := l.Write(context.Background(), r, revision); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}
