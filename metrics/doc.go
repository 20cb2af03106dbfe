// Package metrics measures a Scheduler for Prometheus.
//
//	m := metrics.New()
//	prometheus.MustRegister(m)
//	s, err := cronce.New(ctx, nc, cronce.WithObserver(m))
//
// Every metric is described in docs/metrics.md, with the alarms to set. The binary
// serves the same at "cronce run --metrics-addr".
//
// # Decisions
//
// Metrics are a package of their own, so that only programs that import it link the
// Prometheus client.
//
// Events are counted when they happen. Values, such as the clock's offset, are read from
// the replica at each scrape. A scrape never waits for the broker: the replica asks the
// broker every few seconds for the watermark and for what waits in the queues.
//
// The number of series is bounded. Durations have the label queue, because a queue is slow
// as a whole. Outcomes have the label job, because single jobs fail: one value for each of
// the first MaxJobs jobs that have an outcome, and OtherJobs for all others.
package metrics
