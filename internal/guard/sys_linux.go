package guard

import (
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

// commandAttr makes a command the leader of a process group, and lets it die
// with the guard.
func commandAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes the guard the parent of those whose own parent has exited.
// It also keeps files that the worker itself inherited out of the commands.
func adoptOrphans() {
	// Both can fail on kernels or in sandboxes that do not know them; then the
	// first process adopts, and the files are inherited as everywhere.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}
