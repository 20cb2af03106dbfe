//go:build darwin || dragonfly || freebsd || openbsd

package guard

import "syscall"

// commandAttr makes a command the leader of a process group.
func commandAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// adoptOrphans leaves that to the first process, which reaps on these systems.
func adoptOrphans() {}
