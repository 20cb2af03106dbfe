// Package job says what is to run and when: jobs, schedules, slots, handlers and
// the errors by which they steer.
//
// A program that schedules needs these:
//
//   - [Job], with its policies; only Name and Schedule have to be set.
//   - [Handler] and [Run]: what runs a slot, and what it is told.
//   - [Permanent] and [RetryAfter]: errors that say what is to become of a slot.
//   - [ErrLeaseLost], [ErrTimeout], [ErrStopping], [ErrCancelled] and [ErrReplaced]:
//     why a handler's context has ended, as its cause.
//   - [ParseSchedule] and [Schedule]: which slots there are, without a broker.
//
// It is pure: no clock, no NATS, no goroutine, no randomness. Whatever nodes must
// agree on is computed here, from arguments, so that any two nodes compute the
// same.
//
// # What is in it
//
//   - [Job] is a name, a schedule, a payload and policies; [Plan] is the part
//     of it that decides which slots exist.
//   - [Schedule] computes slots. [ParseSchedule] makes one of a plan.
//   - [Slot] is one planned run: a job and an instant in UTC, in whole seconds.
//     [Slot.ID] is its only name, the same on every node: message ID, ledger key,
//     log field, idempotency key.
//   - [Definition], [Record], [Node], [Watermark] and [Message] are what stands on
//     the broker, as Go values and as JSON or headers.
//
// # Expressions
//
// Five fields (minute, hour, day of month, month, day of week) or six, with
// seconds first. Each is a list of *, ?, numbers, ranges a-b and steps */n, a-b/n
// or a/n (from a to the end). Months and weekdays have names, JAN and MON, in any
// case; 7 is Sunday as 0 is, and MON-SUN is a week. ? is another spelling of *.
// Where both day fields restrict, a date that matches one of them will do; a field
// with a plain * does not restrict, one with */2 does. @yearly, @annually,
// @monthly, @weekly, @daily, @midnight and @hourly stand for five fields each.
//
// "@every 90s" is counted from 1970-01-01T00:00:00Z, so that all nodes count
// alike; "@at 2027-01-01T00:00:00Z" is one slot. Neither looks at a zone, but
// their exclusions do.
//
// H is a number that the job's name decides, so that a thousand hourly jobs do
// not fire together: FNV-1a 64 over the name, a zero byte and the field's name
// (second, minute, hour, dom, month, dow), modulo the size of the range. H is the
// whole field, but for days of the month, where it is 1-28, which every month has.
// H(a-b) is a range of one's own; H/n and H(a-b)/n are every n, beginning at the
// hash modulo n. [Plan].Spread delays the due time alike, by seconds, with the
// field's name "spread". testdata/hash.json has vectors.
//
// # When clocks change
//
// A job whose hour field does not begin with * is a wall-clock job. If its wall
// time falls into a gap, the slot is the first instant after the gap ([GapAfter])
// or there is none ([GapSkip]). If its wall time comes twice, the slot is at the
// first, at the second or at both ([RepeatFirst], [RepeatSecond], [RepeatBoth]).
// Two wall times that map to one instant are one slot. @daily is such a job.
//
// A job whose hour field begins with * follows elapsed time: each instant whose
// wall clock matches is a slot, and the two settings do not matter. "30 * * * *"
// runs every hour whatever the clocks do. @hourly is such a job; 0-23 is not.
//
// A gap may be half an hour (Lord Howe), begin at midnight (Sao Paulo, Havana) or
// last a whole day (Samoa, 30 December 2011); no case is special here.
//
// # Bounds and exclusions
//
// From is inclusive, Until exclusive. An exclusion is a date of the job's zone or
// a cron expression; five fields exclude whole minutes. What the clock shows at
// the slot decides: a slot planned for 02:30 that a gap moves to 03:00 is excluded
// by "0 3 * * *" and not by "30 2 * * *".
//
// A plan that has no slot at any time (30 February, all excluded) is refused; one
// that merely has none any more is not, for the registry may hold it. @every with
// exclusions that hit a million periods in a row, but never a whole day, counts as
// having no further slot: to search on could take minutes.
//
// # Time zones
//
// A zone's rules come from zoneinfo.zip in this directory, never from the system,
// so all nodes of one build compute the same slots; [TzdataVersion] names the
// release, and stands in every node's record.
//
// # Design: from an expression to instants
//
// An expression describes what a clock on the wall shows; a slot is an instant.
// The two are kept apart:
//
//	text --grammar--> sets of numbers --calendar--> wall times --spans--> instants
//
// The grammar (field.go, expression.go) checks the text, replaces names and H by
// numbers, and only then lets robfig/cron make sets of them. The calendar
// (calendar.go) is a set of wall times without those that are excluded
// (exclude.go); it knows no zone. The spans (zone.go) are the stretches of time in
// which a zone's offset is one; source.go walks them and maps wall times to instants.
//
// # Design: claim rules
//
// [Decide] is all that a worker thinks about a delivered slot: what the ledger
// says of it, whether the owner is proved dead, whether the slot is of the plan
// that was in force at its instant, whether it is too old, too late or too early.
// [Complete] is what the end of an attempt makes of the record. Both only propose
// a record; the write at a revision decides. testdata/claim has the rules as
// scenarios.
//
// A slot keeps what it started with: its record says how many attempts it may
// have (an edit must not start an at-most-once slot twice), and from its first
// claim on its plan is not asked about any more.
//
// # Design: decisions
//
// Zone data of our own. time/tzdata is only asked where the system has none, so
// two hosts with the same binary could disagree for as long as an upgrade of
// tzdata takes to reach both: one slot under two names, run twice. It also lists
// no names, so that it could not suggest one. The price is 400 KB in the
// repository, and that a change of the law needs a release of this module.
// Rejected: ZONEINFO, which differs by machine; reaching into time/tzdata by
// linkname. What would change our mind: a way to ask time for the embedded data.
//
// A strict grammar before robfig/cron. The parser panics on "TZ=", loops on huge
// steps, and takes "*-5" for "*". Rejected: recover, which hides what went wrong;
// a parser of our own, which would have to prove that it reads all else alike.
//
// A search of our own. robfig/cron's skips slots in gaps, and gives up after five
// years, where 29 February may be eight years off, and forty on a Monday.
// Rejected: its search on a zone without DST with a correction after it, since a
// wall time that was skipped is not seen by who corrects what was found.
//
// No interpretation of Time.ZoneBounds beyond "the offset does not change
// before": it does not give all bounds (golang/go#81583), and not only real ones.
//
// @every and @at refuse nothing of the settings that do not concern them, so that
// a default set for all jobs of a file needs no exceptions.
package job
