//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// strayEvery is the shortest time between two reads of the process table while commands
	// are ending. A read takes some milliseconds.
	strayEvery = 100 * time.Millisecond

	// maxDepth bounds the search through the parents of a process.
	maxDepth = 100
)

// process is a row of the system's process table.
type process struct {
	parent, group int
	start         string // distinguishes it from a later process with the same number
	zombie        bool
}

// findStrays finds the processes of ended commands that have left their groups, for example by
// setsid, and sends them TERM. It finds descendants of a command, and adopted children of the guard
// with the mark of a command in their environment. Where processes returns nil, it finds none.
func (k *keeper) findStrays(now time.Duration) {
	fresh := now >= k.readAt+strayEvery
	if fresh {
		k.table, k.readAt = processes(), now
	}
	owners, self := k.owners(fresh), os.Getpid()
	for pid, p := range k.table {
		if owners[pid] != nil || owners[p.group] != nil || p.zombie {
			continue // known, or signalled with its group
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

// owners maps the leader of each group, and the group's strays, to the group. If the table is
// fresh, it first removes strays that have ended.
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

// ancestor returns the group of the command that p descends from, or nil.
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

// marked returns the group of the ended command whose mark the process has in its
// environment, or nil.
func (k *keeper) marked(pid int) *group {
	var environment []string
	for _, g := range k.groups {
		if !g.ended || len(g.mark) == 0 {
			continue
		}
		if environment == nil {
			environment = environ(pid)
		}
		if hasMark(environment, g.mark) {
			return g
		}
	}
	return nil
}

// hasMark reports whether the environment has all entries of a mark.
func hasMark(environment, mark []string) bool {
	return !slices.ContainsFunc(mark, func(m string) bool { return !slices.Contains(environment, m) })
}

// signal sends a signal to all processes of the command.
func (g *group) signal(s unix.Signal) {
	_ = unix.Kill(-g.pid, s)
	for pid := range g.strays {
		_ = unix.Kill(pid, s)
	}
}
