// Package migrate turns what ran jobs before, a crontab or Kubernetes CronJobs, into
// a job file whose slots are the same.
//
// A job is carried over only if it then runs at the same instants; what else it had
// and a job file cannot say is named with its line (a [Note]), and never dropped in
// silence. Whoever starts the program decides whether that is good enough.
//
// # Decisions
//
// The imported jobs say what their old scheduler did where Cronce does better by
// default: no retries and no catching up after a crontab, for one. Somebody who moves
// a hundred jobs wants to change where they run, and what they do afterwards.
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
