package guard

import (
	"bytes"
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

// renameProcess has the guard go by its own name where not the arguments count but what
// was executed: for pkill and killall.
func renameProcess() { _ = os.WriteFile("/proc/self/comm", []byte(guardName), 0) }

// onlyZombies reports whether all of the process group have exited and wait for
// their parent to reap them. The guard reaps what it started and adopted; but a
// parent may live outside the group, and never do it.
func onlyZombies(pgid int) bool {
	table := processes()
	for _, p := range table {
		if p.group == pgid && !p.zombie {
			return false
		}
	}
	return table != nil
}

// processes reads the table of processes; nil if that cannot be read.
func processes() map[int]process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	table := make(map[int]process, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it is gone by now
		}
		// "PID (NAME) STATE PPID PGRP ...", and NAME may hold anything. The start time is
		// the 22nd field of all.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 20 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		group, _ := strconv.Atoi(fields[2])
		table[pid] = process{parent: parent, group: group, start: fields[19], zombie: fields[0] == "Z" || fields[0] == "X"}
	}
	return table
}

// environ is the environment with which a process was started.
func environ(pid int) []string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	return strings.Split(string(data), "\x00")
}
