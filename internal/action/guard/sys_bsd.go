//go:build darwin || dragonfly || freebsd || openbsd

package guard

import "syscall"

// commandAttr makes a command the leader of a process group.
func commandAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// onlyZombies need not be known: zombies do not answer signals to their group on
// these systems.
func onlyZombies(int) bool { return false }

// adoptOrphans leaves that to the first process, which reaps on these systems.
func adoptOrphans() {}

// processes is not known here.
func processes() map[int]process { return nil }

func environ(int) []string { return nil }

// renameProcess does what it can, which is nothing: the arguments have the name.
func renameProcess() {}
