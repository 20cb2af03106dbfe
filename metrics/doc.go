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
// A package of its own, so that only those programs get the Prometheus client which
// ask for it.
//
// What happens is counted when it happens; what is, such as the clock's offset, is
// asked of the replica at each scrape. A scrape never waits for the broker: what
// only the broker knows (the watermark, what waits in a queue) is asked of it every
// few seconds, beside the scrapes.
//
// The number of series is bounded. Times are by queue, since it is a queue that is
// slow; outcomes are by job, since it is a job that fails, of the first MaxJobs jobs
// that have any, and of all others together as OtherJobs.
package metrics
