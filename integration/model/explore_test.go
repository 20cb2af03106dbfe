package model

import (
	"fmt"
	"strings"
)

// found is what an exploration has to say.
type found struct {
	states, depth, steps int
	whole                bool           // every reachable state was seen
	labels               map[string]int // how often each kind of step was made
	violated             string
	trace                string // how the violation comes about
}

// explore walks breadth-first through every state that can be reached in depth
// steps, and checks each; it stops at the first violation, which so has a
// shortest trace.
func explore(m *machine, depth int) found {
	g := &graph{index: map[state]int32{}}
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
			if f.expand(m, g); m.violated != "" {
				f.whole = false
				return f.end(m, g, g.next)
			}
		}
	}
	if f.whole {
		if stuck := g.stuck(); stuck >= 0 {
			m.violate(noWayOut)
			return f.end(m, g, stuck)
		}
	}
	return f.end(m, g, 0)
}

// expand checks one state and makes its successors.
func (f *found) expand(m *machine, g *graph) {
	s := g.states[g.next]
	if m.check(s); m.violated != "" {
		return
	}
	m.emit = func(label string, next state, live bool) {
		f.steps++
		f.labels[label]++
		to := g.visit(next, g.next, label)
		if live {
			g.live = append(g.live, edge{g.next, to})
		}
		if m.violated != "" && f.trace == "" {
			f.trace = g.trace(to)
		}
	}
	m.successors(s)
}

func (f found) end(m *machine, g *graph, at int32) found {
	f.states, f.violated = len(g.states), m.violated
	if m.violated != "" && f.trace == "" {
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

// graph is the states seen so far, in the order in which they were.
type graph struct {
	index  map[state]int32
	states []state
	parent []int32
	label  []string
	live   []edge
	next   int32 // the first one whose successors are not made yet
}

type edge struct{ from, to int32 }

func (g *graph) visit(s state, from int32, label string) int32 {
	if i, seen := g.index[s]; seen {
		return i
	}
	i := int32(len(g.states))
	g.index[s] = i
	g.states, g.parent, g.label = append(g.states, s), append(g.parent, from), append(g.label, label)
	return i
}

// stuck is a state from which the live steps lead to no end (an outcome, and no
// message left), or -1: walking back from the ends reaches all others.
func (g *graph) stuck() int32 {
	into := make([][]int32, len(g.states))
	for _, e := range g.live {
		into[e.to] = append(into[e.to], e.from)
	}
	ends := make([]bool, len(g.states))
	var queue []int32
	for i, s := range g.states {
		if s.slot.final() && !s.msg {
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

func (g *graph) trace(i int32) string {
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
