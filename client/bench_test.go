package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/job"
)

// BenchmarkLedgerQuestions compares the questions about newest slots in a ledger of a thousand
// records with the same in one of a million. The records are those of a hundred jobs.
func BenchmarkLedgerQuestions(b *testing.B) {
	const jobs = 100
	name := func(i int) string { return fmt.Sprintf("customer-report-%02d", i%jobs) }
	for _, records := range []int{1000, 1_000_000} {
		s := benchSite(b)
		for i := range jobs {
			d := plans.Definition{Job: job.Job{Name: name(i), Schedule: "@every 60s"}, Since: time.Now().AddDate(0, 0, -30), Nonce: "n"}
			if _, err := s.store.Jobs().Write(b.Context(), d, 0); err != nil {
				b.Fatal(err)
			}
		}
		oldest := time.Now().UTC().Truncate(time.Minute).Add(-time.Duration(records/jobs-1) * time.Minute)
		kvtest.Fill(b, s.store.Ledger(), records, func(i int) job.Record {
			at := oldest.Add(time.Duration(i/jobs) * time.Minute)
			return job.Record{
				Slot: job.NewSlot(name(i), at), Queue: "default", State: job.Succeeded, Attempt: 1, MaxAttempts: 3, Node: "worker-1-1763700000-abcdefgh",
				Attempts: []job.Attempt{{Number: 1, Node: "worker-1-1763700000-abcdefgh", Started: at}}, Nonce: fmt.Sprint(i), Due: at, Finished: at.Add(time.Second),
			}
		})
		run := func(what string, ask func() error) {
			b.Run(fmt.Sprintf("%s/%d", what, records), func(b *testing.B) {
				for b.Loop() {
					if err := ask(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		stored := job.NewSlot(name(7), oldest)
		run("one", func() error { _, err := s.store.Ledger().Records(b.Context(), []job.Slot{stored}); return err }) // one round trip, to compare
		run("last", func() error { _, err := s.Last(b.Context(), name(7)); return err })
		run("newest", func() error {
			_, err := s.ListSlots(b.Context(), client.SlotFilter{Job: name(7), Limit: 10, Newest: true})
			return err
		})
		run("job", func() error { _, err := s.Job(b.Context(), name(7)); return err })
		run("jobs", func() error { _, err := s.Jobs(b.Context(), client.JobFilter{}); return err })
	}
}
