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

// adoptOrphans makes the guard the parent of descendants whose own parent has exited. It also
// prevents commands from inheriting files that the worker has inherited.
func adoptOrphans() {
	// Both can fail on kernels or in sandboxes that do not support them. Then the first process
	// adopts the orphans, and commands inherit the files, as on other systems.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// renameProcess sets the process name of the guard, which otherwise is the executable's name. pkill
// and killall look at the process name, not at the arguments.
func renameProcess() { _ = os.WriteFile("/proc/self/comm", []byte(guardName), 0) }

// onlyZombies reports whether all processes of the group have exited and wait for their parents
// to reap them. The guard reaps the processes that it started or adopted. Another parent, outside
// the group, may never reap its child.
func onlyZombies(pgid int) bool {
	table := processes()
	for _, p := range table {
		if p.group == pgid && !p.zombie {
			return false
		}
	}
	return table != nil
}

// processes reads the table of processes. It returns nil if the table cannot be read.
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
			continue // the process has ended meanwhile
		}
		// The line is "PID (NAME) STATE PPID PGRP ...". NAME may contain anything, even parentheses.
		// The start time is the 22nd field of the line.
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

// environ returns the environment with which a process was started.
func environ(pid int) []string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	return strings.Split(string(data), "\x00")
}
