package bench_test

import (
	"fmt"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/lab/bench"
)

// BenchmarkPublish8 compares eight producers in one process with one, in turn.
// The target is 0.8, and fewer than 1.02 messages for each slot.
func BenchmarkPublish8(b *testing.B) {
	for _, slots := range []int{20_000, 60_000} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			srv := natstest.Run(b)
			connect := connectTo(srv.ClientURL())
			best := map[int]bench.Published{}
			turn := 0
			for b.Loop() {
				turn++
				for _, producers := range []int{1, 8} {
					p, err := bench.PublishDue(b.Context(), connect, fmt.Sprintf("p%d_%d", producers, turn), 1, slots, producers)
					if err != nil {
						b.Fatal(err)
					}
					b.Logf("%d producers: %.0f slots/s, %.3f messages for each", producers, p.PerSecond(), p.Sent)
					if old, ok := best[producers]; !ok || p.Took < old.Took {
						best[producers] = p
					}
				}
			}
			b.ReportMetric(best[8].PerSecond()/best[1].PerSecond(), "ratio")
			b.ReportMetric(best[1].PerSecond(), "one/s")
			b.ReportMetric(best[8].PerSecond(), "eight/s")
			b.ReportMetric(best[8].Sent, "sent/slot")
			b.ReportMetric(0, "ns/op")
		})
	}
}
