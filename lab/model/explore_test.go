package model

import (
	"fmt"
	"strings"
)

// found is the result of an exploration.
type found struct {
	states, depth, steps int
	whole                bool           // every reachable state was seen
	labels               map[string]int // how often each kind of step was made
	violated             string
	trace                string // the steps that lead to the violation
}

// world can be explored: it has states, steps between them, and invariants of the states.
type world[S comparable] interface {
	start() S
	check(S)

	// successors calls emit with every possible next step. live is true if the step also happens in a
	// fleet in which no node dies any more.
	successors(s S, emit func(label string, next S, live bool))

	// ended reports whether every slot has its outcome, and no message is left.
	ended(S) bool

	violate(what string)
	broken() string // the first violation; empty: none
}

// explore checks every state that can be reached in depth steps, breadth-first. It stops at the first
// violation, so the trace of the violation is one of the shortest.
func explore[S comparable](m world[S], depth int) found {
	g := &graph[S]{index: map[S]int32{}}
	g.visit(m.start(), 0, "start")
	f := found{whole: true, labels: map[string]int{}}
	for level, end := 0, int32(1); ; level, end = level+1, int32(len(g.states)) {
		f.depth = level
		if g.next == end {
			break
		}
		if level == depth {
			f.whole = false
			break
		}
		for ; g.next < end; g.next++ {
			if expand(&f, m, g); m.broken() != "" {
				f.whole = false
				return conclude(f, m, g, g.next)
			}
		}
	}
	if f.whole {
		if stuck := g.stuck(m.ended); stuck >= 0 {
			m.violate(noWayOut)
			return conclude(f, m, g, stuck)
		}
	}
	return conclude(f, m, g, 0)
}

// expand checks one state and makes its successors.
func expand[S comparable](f *found, m world[S], g *graph[S]) {
	s := g.states[g.next]
	if m.check(s); m.broken() != "" {
		return
	}
	m.successors(s, func(label string, next S, live bool) {
		f.steps++
		f.labels[label]++
		to := g.visit(next, g.next, label)
		if live {
			g.live = append(g.live, edge{g.next, to})
		}
		if m.broken() != "" && f.trace == "" {
			f.trace = g.trace(to)
		}
	})
}

func conclude[S comparable](f found, m world[S], g *graph[S], at int32) found {
	f.states, f.violated = len(g.states), m.broken()
	if f.violated != "" && f.trace == "" {
		f.trace = g.trace(at)
	}
	return f
}

func (f found) String() string {
	how := "all that can be reached"
	if !f.whole {
		how = "no deeper"
	}
	return fmt.Sprintf("%d states, %d steps between them, depth %d, %s", f.states, f.steps, f.depth, how)
}

// graph has the states seen so far, in the order in which they were found.
type graph[S comparable] struct {
	index  map[S]int32
	states []S
	parent []int32
	label  []string
	live   []edge
	next   int32 // the first state that was not expanded yet
}

type edge struct{ from, to int32 }

func (g *graph[S]) visit(s S, from int32, label string) int32 {
	if i, seen := g.index[s]; seen {
		return i
	}
	i := int32(len(g.states))
	g.index[s] = i
	g.states, g.parent, g.label = append(g.states, s), append(g.parent, from), append(g.label, label)
	return i
}

// stuck returns a state from which the live steps lead to no end, or -1. It walks back from the ends: a
// state that it does not reach is stuck.
func (g *graph[S]) stuck(ended func(S) bool) int32 {
	into := make([][]int32, len(g.states))
	for _, e := range g.live {
		into[e.to] = append(into[e.to], e.from)
	}
	ends := make([]bool, len(g.states))
	var queue []int32
	for i, s := range g.states {
		if ended(s) {
			ends[i], queue = true, append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, from := range into[i] {
			if !ends[from] {
				ends[from], queue = true, append(queue, from)
			}
		}
	}
	for i := range ends {
		if !ends[i] {
			return int32(i)
		}
	}
	return -1
}

func (g *graph[S]) trace(i int32) string {
	var lines []string
	for ; i > 0; i = g.parent[i] {
		lines = append(lines, fmt.Sprintf("  %s\n    %v", g.label[i], g.states[i]))
	}
	var b strings.Builder
	for j := len(lines) - 1; j >= 0; j-- {
		fmt.Fprintln(&b, lines[j])
	}
	return b.String()
}
