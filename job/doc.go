// Package job holds what a program that embeds Cronce works with: jobs and their
// schedules, the slots they produce, the handlers that run them, and their outcomes.
//
// A program fills in a Job, of which only Name and one of Schedule, After and On are
// required, and writes a Handler. The handler receives a Run, and reports its result by the
// error that it returns:
//
//   - nil: the slot has succeeded.
//   - an error: the attempt has failed, and is retried as Job.Retry says.
//   - Permanent(err): the slot has failed; no attempt follows.
//   - RetryAfter(d, err): the attempt has failed; the next one starts after d.
//
// The context of a handler ends when the handler must stop. The error that context.Cause
// then returns wraps ErrTimeout, ErrCancelled, ErrReplaced, ErrStopping or ErrLeaseLost.
//
// A slot is one planned run of a job: its name and an instant in UTC, in whole seconds.
// Slot.ID is the same on every node, so it serves as the idempotency key of the slot's
// effect. Each slot ends with exactly one outcome, a final State.
//
// ParseSchedule computes slots without a broker. Functions of this package that do not
// say otherwise may be called from several goroutines at once.
//
// # Expressions
//
// An expression has five fields (minute, hour, day of month, month, day of week), or six
// with seconds first. A field is a list of *, ?, numbers, ranges a-b, and steps */n,
// a-b/n or a/n (from a to the end). Months and weekdays also have names, such as JAN and
// MON, in upper or lower case. Sunday is 0 or 7. ? means *. If both day fields restrict,
// a date has to match one of them. A field with a plain * does not restrict; one with */2
// does. The words @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly
// stand for expressions.
//
// A day of the month may also be L, the last one; L-3, three days before it; 15W, the day
// from Monday to Friday that is nearest to the 15th and in the same month; or LW, the last
// such day. A day of the week may be FRIL or 5L, the last Friday of the month, or FRI#2,
// the second one.
//
// "@every 2w" and "@every 3d" are calendar dates, counted from Job.From, which they need: every
// second Monday at 09:00 on the zone's clock, if From is such an instant.
//
// "@every 90s" counts elapsed time from Job.From, or else from 1970-01-01T00:00:00Z, and "@at 2027-01-01T00:00:00Z" is a
// single slot. The time zone changes neither; it applies to their exclusions.
//
// H is a number that depends on the job's name, so that a thousand hourly jobs do not all start
// at once. H is one number from the range of its field (days of the month: 1-28), H(a-b) one
// from a to b. H/n and H(a-b)/n match every n-th number of that range; the first one depends on
// the name.
//
// # When clocks change
//
// If the hour field begins with *, the job follows elapsed time: every instant at which
// the clock of the zone matches is a slot. "30 * * * *" runs every hour, whatever the
// clocks do.
//
// Otherwise the job follows the clock on the wall. If its time falls into a gap, the slot
// is the first instant after the gap, or there is none (Job.DSTGap). If its time occurs
// twice, the slot is at the first occurrence, the second or both (Job.DSTOverlap).
//
// # Bounds and exclusions
//
// Job.From is inclusive, Job.Until exclusive. An exclusion is a date in the job's zone, or
// an expression; five fields exclude whole minutes. An exclusion is compared with what the
// clock shows at the slot: a slot planned for 02:30 that a gap moves to 03:00 is excluded
// by "0 3 * * *". A plan that can never have a slot (30 February) is invalid; a plan whose
// slots have all passed is valid.
package job
