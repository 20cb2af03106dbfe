// Package migrate converts the configuration of other schedulers, such as a crontab, timers of
// systemd or the schedule of Sidekiq, to a job file with the same slots.
//
// A job is carried over only if it then runs at the same instants. Differences, and other settings
// that a job file cannot express, become a [Note] with their line.
//
// # Decisions
//
// An imported job keeps the behaviour of its old scheduler, even where Cronce has a better
// default: a crontab's job has no retries and does not catch up. A user who moves a
// hundred jobs first changes where they run, and later how they behave.
//
// The schedulers differ in what two day fields mean, and in what they do when clocks change. The
// tests compare the slots of jobs with those rules.
//
//   - Vixie cron: if no day field begins with *, a date has to match only one of them. If one
//     does, a date has to match both: "0 0 */2 * MON" are Mondays on odd dates. The job then
//     excludes the other weekdays. If the minute or the hour begins with *, a job follows elapsed
//     time: dst_gap skip, dst_overlap both.
//
//   - Kubernetes: a wall time in a gap is skipped, and one that occurs twice runs twice. If a gap is at
//     midnight or lasts half an hour, its search leaves out further times, or invents some; the job
//     here does not.
//
//   - systemd: all parts must match. A wall time in a gap has no run, and one that occurs twice
//     runs at the first occurrence, even in a job that runs every hour. So "every hour" is written
//     0-23 and not *. The test compares with systemd-analyze.
//
// The schedules of libraries of Python are not read from their source: examples/migrate has scripts that
// ask the library (docs/decisions/0075). A job that ran inside a process (a task) gets an action that
// calls a small program, which docs/migration.md shows. The steps of a workflow get an action that fails
// until it is filled in.
//
// Rejected: the Kubernetes API's Go types, which bring a hundred packages for one manifest;
// guessing the entry point of an image.
package migrate
