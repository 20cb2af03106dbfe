// Package migrate turns what ran jobs before, such as a crontab, timers of systemd or the
// schedule of Celery beat, into a job file whose slots are the same.
//
// A job is carried over only if it then runs at the same instants. Its other settings that
// a job file cannot express become a [Note] with their line; none is dropped silently.
//
// # Decisions
//
// An imported job keeps the behaviour of its old scheduler, even where Cronce has a better
// default: a crontab's job has no retries and does not catch up. A user that moves a
// hundred jobs changes where they run first, and their behaviour later.
//
// Vixie cron and Kubernetes differ in what two day fields mean, and in what they do
// when clocks change; the tests hold both against the real rules.
//
//   - cron: a day field that begins with * does not restrict for the rule of "either",
//     but its step still counts: "0 0 */2 * MON" are Mondays on odd dates. That is said
//     by an exclusion of the other weekdays. A minute or hour that begins with * makes a
//     job follow elapsed time: dst_gap skip, dst_overlap both.
//
//   - Kubernetes uses the same parser as Cronce, and its search: what falls into a gap
//     is skipped, what comes twice runs twice.
//
//   - systemd: all parts must match. A wall time in a gap has no run, and one that comes twice
//     has its first, also every hour: so "every hour" is written 0-23 and not *. The test asks
//     systemd-analyze.
//
//   - Celery beat and APScheduler: all fields must match, both day fields too.
//
// A Python file is read and never run: package python finds the literals in it, and what is not
// made of literals becomes a note. A program that runs would know more, but a user who
// imports a file does not expect that its code runs. What ran inside of a process (a task, a function) gets
// an action that calls a small program of the page on migration; the steps of a workflow get an
// action that fails until it is filled in.
//
// Rejected: the Kubernetes API's Go types, which bring a hundred packages for one
// manifest; guessing what an image's entry point is.
package migrate
