// Package croncetest runs a fleet of schedulers inside a test: a real nats-server in
// this process, real producers and workers, and a clock that the test sets. A week
// of an hourly job takes about a second.
//
//	func TestReport(t *testing.T) {
//		f := croncetest.New(t, croncetest.At("2026-03-28T00:00:00Z"))
//		f.Handle(job.Job{Name: "report", Schedule: "0 7 * * *", Timezone: "Europe/Berlin"}, report)
//		f.Start(2)
//		f.Advance(7 * 24 * time.Hour)
//		f.CheckSucceeded("report")
//	}
//
// # The clock
//
// Advance sets the clock to each due time in turn, and waits until every slot that is
// due has its outcome. So no slot is late, however slow the machine is. If no replica
// runs, Advance sets the clock to the end at once, and the slots in between are missed:
// test a downtime in this way.
//
// In between, the clock runs at the pace of the real one. The scheduler uses this clock
// for due times, lateness, catch-up, horizons, pauses, records and the broker's
// timestamps. Durations are real: the timeout of a handler, the delay before a retry
// (give jobs that fail a short backoff), the lease.
//
// # Crashes
//
// Crash cuts a replica's connection to the broker and ends the contexts of its handlers,
// at any moment, also from within a handler. Another replica takes over its slots after
// its lease: 3 s, or the value of Lease.
//
// # Schedulers
//
// Each replica is a cronce.Scheduler. Options passes it the options of your program, such as its
// middleware. Scheduler returns it, so that a test can do what your program does while it runs: add
// and remove handlers, trigger runs, use its client. In place of cronce.HandleFunc use job.Typed:
//
//	f.Handle(job.Job{Name: "charge", Schedule: "none"}, job.Typed(charge))
//
// # Alerts
//
// Give the job a subject (job.AlertNATS) and subscribe to it with Conn. An alert about a late
// slot is sent within about half a minute of real time after the slot becomes late.
//
// # What handlers report
//
// Records returns the records, with the outputs and the results of handlers. To test what a
// handler reports while it runs, use the fleet's Client: Running returns its progress and
// its output so far, and Tail follows it.
//
// # What it does not do
//
// The server does not use this clock. So you cannot trigger a run for a later time,
// because the server keeps that timer; and the server removes old messages by its own
// clock. A fleet runs handlers in Go, and not the actions of a job file: to try those, start
// "cronce run -f" on a nats-server of your own.
//
// Use this package in tests only: it links nats-server.
//
// # Decisions
//
//   - The whole engine is the real one. Rejected: a scheduler that a test calls for each
//     slot. Users test whether a job with its policies does what they expect, and the
//     engine decides that.
//   - A timestamp of the broker is converted with the offset that the clock had when the
//     timestamp was made. All readers convert it alike, timestamps stay in order, and none
//     is ahead of the clock. Rejected: a server with another clock (that of nats-server
//     cannot be set), and testing/synctest (a week has hundreds of thousands of heartbeats
//     and announcements, which would all be sent).
//   - Advance goes from due time to due time. If it set the clock to the end at once, the
//     producers would find all slots due together and apply the catch-up policies.
package croncetest
