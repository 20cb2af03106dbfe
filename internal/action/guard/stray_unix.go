//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// strayEvery bounds how often the table of processes is read while commands are
	// ending, which takes some milliseconds.
	strayEvery = 100 * time.Millisecond

	// maxDepth bounds a line of parents.
	maxDepth = 100
)

// process is a row of the system's table of processes.
type process struct {
	parent, group int
	start         string // tells it from a later one of the same number
	zombie        bool
}

// look finds the processes that ended commands have started and that have left their
// groups, as setsid does, and sends them TERM: those whose line of parents leads to the
// command, and, since the guard becomes the parent of those whose own has exited, those of
// the guard's children with the command's mark in their environment. Where the system has
// no table to read there are none.
func (k *keeper) look(now time.Duration) {
	fresh := now >= k.readAt+strayEvery
	if fresh {
		k.table, k.readAt = processes(), now
	}
	owners, self := k.owners(fresh), os.Getpid()
	for pid, p := range k.table {
		if owners[pid] != nil || owners[p.group] != nil || p.zombie {
			continue // it is known, or ends with its group
		}
		g := k.ancestor(p, owners)
		if g == nil && fresh && p.parent == self {
			g = k.marked(pid)
		}
		if g != nil && g.ended {
			g.strays[pid] = p.start
			_ = unix.Kill(pid, unix.SIGTERM)
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
}

// owners says of the processes that are known to be a command's, or its strays, whose
// they are. Strays that are gone are forgotten first, if the table is fresh.
func (k *keeper) owners(fresh bool) map[int]*group {
	owners := make(map[int]*group, len(k.groups))
	for _, g := range k.groups {
		owners[g.pid] = g
		for pid, start := range g.strays {
			if p, ok := k.table[pid]; fresh && (!ok || p.zombie || p.start != start) {
				delete(g.strays, pid)
			} else {
				owners[pid] = g
			}
		}
	}
	return owners
}

// ancestor is the command that the process descends from; nil: from none.
func (k *keeper) ancestor(p process, owners map[int]*group) *group {
	for range maxDepth {
		if g := owners[p.parent]; g != nil {
			return g
		}
		parent, ok := k.table[p.parent]
		if !ok {
			return nil
		}
		p = parent
	}
	return nil
}

// marked is the ended command whose mark the process has in its environment.
func (k *keeper) marked(pid int) *group {
	var environment []string
	for _, g := range k.groups {
		if !g.ended || len(g.mark) == 0 {
			continue
		}
		if environment == nil {
			environment = environ(pid)
		}
		if !slices.ContainsFunc(g.mark, func(m string) bool { return !slices.Contains(environment, m) }) {
			return g
		}
	}
	return nil
}

// signal sends a signal to all of the command's processes.
func (g *group) signal(s unix.Signal) {
	_ = unix.Kill(-g.pid, s)
	for pid := range g.strays {
		_ = unix.Kill(pid, s)
	}
}
