// Package migrate turns what ran jobs before, a crontab or Kubernetes CronJobs, into
// a job file whose slots are the same.
//
// A job is carried over only if it then runs at the same instants. Its other settings that
// a job file cannot express become a [Note] with their line; none is dropped silently.
//
// # Decisions
//
// An imported job keeps the behaviour of its old scheduler, even where Cronce has a better
// default: a crontab's job has no retries and does not catch up. A user who moves a
// hundred jobs changes where they run first, and their behaviour later.
//
// Vixie cron and Kubernetes differ in what two day fields mean, and in what they do
// when clocks change; the tests hold both against the real rules.
//
//   - cron: a day field that begins with * does not restrict for the rule of "either",
//     but its step still counts: "0 0 */2 * MON" are Mondays on odd dates. That is said
//     by an exclusion of the other weekdays. A minute or hour that begins with * makes a
//     job follow elapsed time: dst_gap skip, dst_overlap both.
//   - Kubernetes uses the same parser as Cronce, and its search: what falls into a gap
//     is skipped, what comes twice runs twice.
//
// Rejected: the Kubernetes API's Go types, which bring a hundred packages for one
// manifest; guessing what an image's entry point is.
package migrate
