package guard

import (
	"math"
	"os"
	"strconv"
	"strings"
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

// onlyZombies reports whether all of the process group have exited and wait for
// their parent to reap them. The guard reaps what it started and adopted; but a
// parent may live outside the group, and never do it.
func onlyZombies(pgid int) bool {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if err != nil {
			continue // it is gone by now
		}
		// "PID (NAME) STATE PPID PGRP ...", and NAME may hold anything.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 3 || fields[2] != strconv.Itoa(pgid) {
			continue
		}
		if state := fields[0]; state != "Z" && state != "X" {
			return false
		}
	}
	return true
}
