package bench_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/bench"
	"github.com/cronce-io/cronce/internal/natstest"
	"github.com/cronce-io/cronce/job"
)

// BenchmarkDrain holds a worker with default settings against the same broker
// operations written by hand, turn by turn. The ratio is what counts.
func BenchmarkDrain(b *testing.B) {
	for name, url := range map[string]func(*testing.B) (string, int){
		"replicas=1": func(b *testing.B) (string, int) { return natstest.Run(b).ClientURL(), 1 },
		"replicas=3": func(b *testing.B) (string, int) { return natstest.RunCluster(b).URL(), 3 },
	} {
		b.Run(name, func(b *testing.B) {
			servers, replicas := url(b)
			const slots = 20_000
			var ours, ceiling time.Duration
			turn := 0
			connect := func() *nats.Conn { return natstest.Connect(b, servers) }
			for b.Loop() {
				turn++
				best := time.Hour
				for _, shape := range bench.Shapes() {
					r, err := bench.DrainCeiling(b.Context(), connect(), fmt.Sprintf("hand%d", turn), replicas, slots, shape)
					if err != nil {
						b.Fatal(err)
					}
					b.Logf("%+v: %v", shape, r)
					best = min(best, r.Took)
				}
				r, err := bench.Drain(b.Context(), connect(), connect(), fmt.Sprintf("ours%d", turn), replicas, slots, job.OverlapAllow)
				if err != nil {
					b.Fatal(err)
				}
				b.Logf("ours: %v", r)
				ours, ceiling = ours+r.Took, ceiling+best
			}
			b.ReportMetric(float64(ceiling)/float64(ours), "ratio")
			b.ReportMetric(float64(slots*turn)/ours.Seconds(), "slots/s")
			b.ReportMetric(float64(slots*turn)/ceiling.Seconds(), "ceiling/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
