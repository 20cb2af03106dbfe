// Package croncetest runs a fleet of schedulers inside a test: a real nats-server in
// this process, real producers and workers, and a clock that the test sets. A week
// of an hourly job takes about a second.
//
//	func TestReport(t *testing.T) {
//		f := croncetest.New(t, croncetest.At("2026-03-28T00:00:00Z"))
//		f.Handle(job.Job{Name: "report", Schedule: "0 7 * * *", Timezone: "Europe/Berlin"}, report)
//		f.Start(2)
//		f.Advance(7 * 24 * time.Hour)
//		f.Once("report")
//	}
//
// # The clock
//
// Advance goes from one due time to the next, sets the clock there, and waits until
// all that is due has its outcome: nothing is late, whatever the machine does
// meanwhile. Only when no replica runs does it go all the way at once, and what fell
// due meanwhile was missed: that is how a downtime is tested.
//
// Between two settings the clock goes on at its own pace. All that the scheduler
// knows of the time it knows by this clock, the broker's timestamps included: due
// times, lateness, catch-up, horizons, pauses, records. What is measured and not
// dated is real: a handler's timeout, the wait before a retry (give jobs that fail a
// short backoff), the lease.
//
// # Crashes
//
// Crash cuts a replica off from the broker, without a goodbye, and ends its handlers'
// contexts, at any moment, from within a handler too. What it had claimed is taken
// over when its lease has run out: 3 s, or what Lease says.
//
// # What it does not do
//
// The server knows nothing of the clock. So a run cannot be triggered for a later
// time, which is the server's to count; and what the server forgets with age it
// forgets by its own.
//
// Use it in tests only: it brings the server along.
//
// # Decisions
//
//   - The engine is the real one, all of it. Rejected: a scheduler that a test calls
//     for each slot. What users want to know is whether their job, with its policies,
//     does what they think, and that is decided by the engine.
//   - The broker's timestamps are read by the clock that was in force when they were
//     made: a step function of the real time, the same for all who read. So they are
//     in order, each is always read alike, and none is ahead of the clock. Rejected:
//     a server whose clock is another (it has none that could be set), and
//     testing/synctest (a week is hundreds of thousands of heartbeats and
//     announcements: they would all have to happen).
//   - Steps, not a jump: a producer that finds a week due at once has been asleep,
//     and rightly goes by the jobs' catch-up policies.
package croncetest
