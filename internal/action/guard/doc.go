// Package guard runs commands that do not outlive the lease of their worker.
//
// A worker that was killed or stopped (SIGSTOP, a frozen container) cannot end its commands,
// and the fleet gives their slots to other workers when its lease expires. So the commands
// are children of a small process beside the worker, the guard. It is the program's own
// binary with a hidden argument, in a session of its own. Over a socket the worker asks the
// guard to start and end commands, and sends the deadline of the lease with every heartbeat.
// The guard ends a command, with its whole process group,
//
//   - if the worker asks for it because the context has ended: TERM, and KILL after
//     Config.Grace;
//   - if the command has exited and other processes of its group are left: the processes of
//     a slot do not outlive its outcome;
//   - if the deadline passes without a renewal, unless Command.Keep is set: TERM, and KILL
//     Config.KillAfter later, before the lease expires;
//   - if the socket closes because the worker has died: TERM, and KILL after
//     Config.KillAfter or sooner, if the deadline requires it. Then the guard exits.
//
// If the guard ends a command that has not exited, it also ends, on Linux, the processes of
// the command that have left the group, for example by setsid. It finds them as descendants of the
// command, or as adopted children with the mark of the command (Command.Mark) in their
// environment. If a command exits by itself, processes that left its group go on: a command
// may start a service this way.
//
// One goroutine of the guard ends commands, and it never blocks. Reports to the worker are
// queued, because a stopped worker does not read them. Another goroutine starts commands,
// because a file system that hangs can block a start.
//
// Deadlines are readings of boot.Now, which counts suspend. Timers do not, so the guard
// reads the clock ten times a second while a command runs.
//
// The guard adopts orphans (Linux: PR_SET_CHILD_SUBREAPER). Otherwise, in a container whose first
// process does not reap orphans, they would stay zombies, and their group would never be empty.
//
// If the guard dies, the kernel kills the commands (Linux: PR_SET_PDEATHSIG). The worker
// kills what is left of their groups, their Run fails, and the next Run starts another
// guard.
//
// docs/decisions/0043 says why the guard starts the commands itself.
//
// # Limits
//
// The guard cannot end a process that left the group on systems other than Linux, or on
// Linux if its parents have exited and it does not have the mark. It cannot end a process of
// another user (sudo).
//
// If worker and guard are killed at the same time, the commands die with the guard on Linux,
// but the processes that they started do not. On other systems the commands do not die either.
// If both are stopped, the commands go on until the guard is continued. It then ends them at
// once. The guard has a process name of its own, so a signal by the program's name reaches
// only the worker. A signal to a cgroup, a container or a machine reaches the commands too.
//
// A start that a file system blocks also blocks the starts behind it.
//
// On Windows there is no guard. Commands run in a job object, which the kernel ends when the
// worker dies. If a worker is suspended, nothing ends its commands until it runs again.
// There is no TERM: commands are terminated at once. Other systems are not supported.
package guard
