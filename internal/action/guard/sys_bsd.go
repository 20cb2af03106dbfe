//go:build darwin || dragonfly || freebsd || openbsd

package guard

import "syscall"

// commandAttr makes a command the leader of a process group.
func commandAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// onlyZombies always returns false. It is not needed: on these systems zombies do not answer
// signals to their group.
func onlyZombies(int) bool { return false }

// adoptOrphans does nothing: on these systems the first process adopts orphans and reaps them.
func adoptOrphans() {}

// processes returns nil: the guard does not read the process table of these systems.
func processes() map[int]process { return nil }

func environ(int) []string { return nil }

// renameProcess does nothing. The name of the guard is in its arguments only.
func renameProcess() {}
