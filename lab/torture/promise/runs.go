package promise

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/lab/torture/plan"
)

// run is one call of a handler, built from its lines.
type run struct {
	slot    job.Slot
	attempt int
	fence   uint64
	node    string
	process string

	start time.Duration
	// stop is when the run ended: its handler returned, its context ended, or its process ended. If
	// that happened just after the process woke, stop is when the process froze.
	stop time.Duration

	ended  bool // the handler returned; result says what
	result string
	cause  string // why the context ended; empty: it did not end

	lines []Line
}

func (r *run) String() string {
	return fmt.Sprintf("attempt %d at fence %d by %s (%s)", r.attempt, r.fence, r.node, r.process)
}

func evidence(runs ...*run) []string {
	var all []string
	for _, r := range runs {
		for _, l := range r.lines {
			all = append(all, l.String())
		}
	}
	return all
}

// String formats a line for a report.
func (l Line) String() string {
	text := fmt.Sprintf("record: %.3fs %s %s", l.Boot.Seconds(), l.Process, l.What)
	switch l.What {
	case LinePause:
		return text + fmt.Sprintf(" since %.3fs", l.From.Seconds())
	case LineFault:
		return text + fmt.Sprintf(" %s of %s since %.3fs, delay %v", l.Kind, l.Of, l.From.Seconds(), l.Delay)
	case LineHeld:
		return text + fmt.Sprintf(" the heartbeat of %s since %.3fs", l.Of, l.From.Seconds())
	}
	text += fmt.Sprintf(" %s attempt %d fence %d node %s", l.Slot, l.Attempt, l.Fence, l.Node)
	if l.Result != "" {
		text += " result " + l.Result
	}
	if l.Cause != "" {
		text += " cause: " + l.Cause
	}
	return text
}

// moment is how long a process may take, after it wakes, to check the clock. The promise has an
// exception for that: an owner that was frozen may act until it has checked the clock.
const moment = 500 * time.Millisecond

type runKey struct {
	slot    string
	attempt int
	fence   uint64
	process string
	node    string
}

// readRuns builds the runs from the lines of handlers, and sorts the other lines into pauses, faults
// and ups. A line of a handler that was not started is a violation.
func (c *checker) readRuns() {
	open := map[runKey]*run{}
	lines := slices.Clone(c.h.Lines)
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Compare(a.Boot, b.Boot) })
	last := time.Duration(0)
	for _, l := range lines {
		last = l.Boot
		switch l.What {
		case LinePause:
			c.pauses[l.Process] = append(c.pauses[l.Process], l)
			continue
		case LineFault:
			c.faults = append(c.faults, l)
			if l.Kind == plan.Freeze || l.Kind == plan.Sleep {
				// The process may be killed before it records the pause.
				c.pauses[l.Of] = append(c.pauses[l.Of], l)
			}
			continue
		case LineUp:
			c.ups = append(c.ups, l)
			continue
		case LineHeld:
			c.held = append(c.held, l)
			continue
		case LineOrder:
			continue
		}
		key := runKey{l.Slot, l.Attempt, l.Fence, l.Process, l.Node}
		r := open[key]
		switch {
		case l.What == LineStart && r != nil:
			c.bad("started twice", r.slot, append(evidence(r), l.String()), "one claim started a handler twice")
			continue
		case l.What == LineStart:
			slot, err := job.ParseSlotID(l.Slot)
			if err != nil {
				c.bad("record", job.Slot{}, []string{l.String()}, "a handler was started for an invalid slot: %v", err)
				continue
			}
			r = &run{slot: slot, attempt: l.Attempt, fence: l.Fence, node: l.Node, process: l.Process, start: l.Boot}
			open[key] = r
			c.runs[slot] = append(c.runs[slot], r)
			c.all = append(c.all, r)
		case r == nil:
			c.bad("record", job.Slot{}, []string{l.String()}, "a line without a start before it")
			continue
		case l.What == LineCancel:
			r.stop, r.cause = l.Boot, l.Cause
		case l.What == LineEnd:
			r.ended, r.result = true, l.Result
			if r.cause == "" {
				r.stop = l.Boot
			}
		}
		r.lines = append(r.lines, l)
	}
	for _, r := range c.all {
		pauses := c.pauses[r.process]
		if r.stop == 0 {
			r.stop = last
			if died, ok := c.h.Deaths[r.process]; ok {
				r.stop = died
				pauses = c.pausesOfKilled(r.process)
			}
		}
		for _, p := range slices.Backward(pauses) {
			r.forgive(p)
		}
	}
}

// pausesOfKilled returns the pauses of a process that was killed. The process could not record its
// last pause, so the pauses of torture itself count too: if the machine starved torture, it may
// have starved that process.
func (c *checker) pausesOfKilled(process string) []Line {
	all := slices.Concat(c.pauses[process], c.pauses[TortureProcess])
	slices.SortFunc(all, func(a, b Line) int { return cmp.Compare(a.Boot, b.Boot) })
	return all
}

// forgive shortens a run that ended just after its process woke from the pause p: since the pause
// began, the handler could not act.
func (r *run) forgive(p Line) {
	switch {
	case p.From >= r.stop || p.Boot+moment < r.stop:
	case p.From >= r.start:
		r.stop = p.From
		r.lines = append(r.lines, p)
	case r.start-p.Boot <= moment: // frozen between the claim and the start
		r.stop = r.start
		r.lines = append(r.lines, p)
	}
}

// frozenSince reports whether a process was frozen at a boot time, or had just woken. It returns
// when the freeze began.
func (c *checker) frozenSince(process string, at time.Duration) (time.Duration, bool) {
	for _, p := range c.pauses[process] {
		if p.From <= at && at <= p.Boot+moment {
			return p.From, true
		}
	}
	return 0, false
}
