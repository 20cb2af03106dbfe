// Package guard runs commands that do not outlive their worker's lease.
//
// A worker that is killed, or stopped (SIGSTOP, a frozen container), cannot end
// the commands it started, and the cluster gives their slots to other workers as
// soon as its lease is over. So commands are not children of the worker but of a
// small process beside it, the guard: the program's own binary under a hidden
// argument, in a session of its own. The worker asks it over a socket to start
// and to end commands, and tells it at every heartbeat how long the lease may
// still be trusted. The guard ends every command, with its whole process group,
//
//   - when the worker asks for it, because the context has ended: TERM, and KILL
//     Config.Grace later;
//   - when the command itself has exited and left others of its group behind: a
//     slot's processes do not outlive its outcome;
//   - when the deadline passes without a renewal, unless it is to be kept
//     (Command.Keep): TERM, and KILL
//     Config.KillAfter after the deadline, before the lease is over;
//   - when the socket closes, because the worker is gone: TERM, and KILL
//     Config.KillAfter later, or sooner if the deadline says so. Then it exits.
//
// Where the guard ends a command that has not exited, it also ends, on Linux, the
// processes that the command has started and that have left its group, as setsid does: its
// descendants, and those of the guard's adopted children that have the command's mark
// (Command.Mark) in their environment. What leaves the group of a command that exits by
// itself goes on: that is how a command starts a service.
//
// One goroutine of the guard ends commands, and it never waits: reports to the worker are
// queued, since a stopped worker does not read them, and another goroutine starts
// commands, since a file system that does not answer can hold a start.
//
// Deadlines are readings of boot.Now, which counts suspend; timers do not, so
// the guard looks at the clock ten times a second while a command runs.
//
// # Decisions
//
// The guard starts the commands itself. The other way, that the worker starts
// them and registers their process groups, leaves a window between fork and
// registration, which can only be closed by a wrapper that waits for leave to
// exec: one more start of a large Go binary per slot, many milliseconds, a
// hundred times on the second. It also leaves the reaping to the worker: the
// children of a stopped worker stay zombies, and a process group's number may be
// used again between the reaping and the de-registration. The guard is both
// parent and judge: what it signals it has not forgotten, and what it has reaped
// is gone for everybody to see.
//
// The guard adopts what a command's processes leave behind (Linux:
// PR_SET_CHILD_SUBREAPER), or orphans would stay zombies for ever in containers
// whose first process does not reap, and their group would never be empty.
//
// If the guard dies, the kernel kills the commands (Linux: PR_SET_PDEATHSIG),
// the worker kills what is left of their groups, their Run fails, and the next
// Run starts another guard.
//
// # What it cannot do
//
// A process that leaves the group is out of reach except on Linux, and there if its
// parents have exited and it does not have the mark. So is one that runs as another user
// (sudo).
//
// When worker and guard are killed in the same instant, the commands die with the guard on
// Linux, but not what they started; elsewhere nothing does. When both are stopped, all of
// it goes on until the guard is continued, which then ends it at once. The guard has a
// name of its own, so that what kills or stops by the program's name meets the worker
// only; a cgroup, a container or a machine takes the commands along.
//
// A start that a file system holds also holds those behind it.
//
// On Windows there is no guard. Commands live in a job object which the kernel
// ends with the worker, however that dies; but nothing ends the commands of a
// worker that is suspended until it runs again, and there is no TERM: they are
// ended at once. Other systems are not supported.
package guard
