// Package lanes draws the story of a slot: a lane for the slot itself, and one for each node that
// ran it, with its attempts as bars. It only computes coordinates; html/parts/lanes.html of package
// pages makes the SVG. It is pure.
//
// The axis is not to scale: a slot waits for hours and runs for milliseconds, and both must be
// visible. It keeps the order of the steps. The width between two steps grows with the square root
// of the time between them (axis.go).
package lanes

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

// Width is the width of the chart, in the units of its view box.
const Width = 960

const (
	laneHeight = 46
	barHeight  = 18
	top        = 8
	foot       = 26 // below the lanes, for the labels of the axis
	left       = 6
	right      = 14
)

// Chart is a picture of a story. The zero value, without lanes, is that of an empty story.
type Chart struct {
	Height int
	Lanes  []Lane
	Bars   []Bar
	Marks  []Mark
	Moves  []Move
	Ticks  []Tick

	// Foot is the y of the axis.
	Foot int
}

// Lane is a horizontal line. The lane of the slot has no Node.
type Lane struct {
	Node string
	Y    int // of its upper edge
	Mid  int // of the line
}

// Bar is an attempt.
type Bar struct {
	X, Y, W, H int
	Attempt    int
	Fence      uint64
	Node       string

	// How is "succeeded", "failed", "running", or "lost": its node died, or lost its claim.
	How string

	// Label is shown at LabelX: inside the bar, or beside it if the bar is too narrow.
	Label  string
	LabelX int
	Inside bool

	// From and To are when the attempt began and ended. If its end is not known, To is when the
	// next attempt began, or the time of the last step.
	From, To time.Time
}

// Mark is something that happened at one time.
type Mark struct {
	X, Y int

	// Kind is the kind of the step: due, published, refused, fenced, reopened, alert, next, or an
	// outcome.
	Kind string
	Text string
}

// Move is a takeover: from the lane of a node to that of another.
type Move struct{ X, FromY, ToY int }

// Tick is a time on the axis, with its distance from the time at which the slot was due.
type Tick struct {
	X      int
	Label  string // "": there is no room for it
	Anchor string // of the label: start, middle or end
}

// New draws a story at the time now. The attempts are those of the slot's record; span writes a
// duration.
func New(s client.Story, attempts []job.Attempt, now time.Time, span func(time.Duration) string) Chart {
	d := drawing{story: s, lanes: map[string]int{}, axis: newAxis(s, now)}
	if len(s.Steps) == 0 {
		return Chart{}
	}
	d.lane("")
	d.chart.Bars = d.bars(attempts, now)
	for _, step := range s.Steps {
		d.mark(step)
	}
	slices.SortStableFunc(d.chart.Marks, func(x, y Mark) int { return cmp.Compare(x.X, y.X) })
	d.chart.Foot = top + len(d.chart.Lanes)*laneHeight
	d.chart.Height = d.chart.Foot + foot
	zero, name := s.Due, "due"
	if zero.IsZero() { // a triggered run
		zero, name = s.Steps[0].Time, "0"
	}
	d.chart.Ticks = d.axis.ticks(zero, name, span)
	return d.chart
}

type drawing struct {
	story client.Story
	chart Chart
	lanes map[string]int
	axis  axis
}

// lane returns the lane of a node, and adds it first if it is new.
func (d *drawing) lane(node string) Lane {
	i, ok := d.lanes[node]
	if !ok {
		i = len(d.chart.Lanes)
		y := top + i*laneHeight
		d.lanes[node] = i
		d.chart.Lanes = append(d.chart.Lanes, Lane{Node: printable.Clip(node, 70), Y: y, Mid: y + laneHeight - barHeight/2 - 8})
	}
	return d.chart.Lanes[i]
}

// bars returns the attempts. The end of an attempt whose node died is not known.
func (d *drawing) bars(attempts []job.Attempt, now time.Time) (list []Bar) {
	steps := d.story.Steps
	for i, step := range steps {
		if step.What != client.StepStarted || step.Attempt == 0 {
			continue
		}
		b := Bar{Attempt: step.Attempt, Fence: step.Fence, Node: step.Node, From: step.Time, How: "lost"}
		for _, after := range steps[i+1:] {
			if after.What == client.StepEnded && after.Attempt == step.Attempt && after.Node == step.Node {
				b.To = after.Time
				break
			}
		}
		switch next := d.next(i); {
		case !b.To.IsZero():
			b.How = how(attempts, b, d.story.State)
		case next.IsZero() && d.story.State == job.Running:
			b.How, b.To = "running", now
		case next.IsZero():
			b.To = steps[len(steps)-1].Time
		default:
			b.To = next
		}
		lane := d.lane(step.Node)
		b.X, b.H, b.Y = d.axis.at(b.From), barHeight, lane.Mid-barHeight/2
		b.W = max(d.axis.at(b.To)-b.X, 4)
		b.Label = fmt.Sprintf("%d · fence %d", b.Attempt, b.Fence)
		width := 7 * len(b.Label)
		switch {
		case b.W > width+12:
			b.Inside, b.LabelX = true, b.X+8
		case b.X+b.W+6+width < Width:
			b.LabelX = b.X + b.W + 6
		default:
			b.LabelX = b.X - 6 - width
		}
		list = append(list, b)
	}
	return list
}

// next returns when the attempt after that of step i started. Zero: none did.
func (d *drawing) next(i int) time.Time {
	for _, after := range d.story.Steps[i+1:] {
		if after.What == client.StepStarted {
			return after.Time
		}
	}
	return time.Time{}
}

func how(attempts []job.Attempt, b Bar, state job.State) string {
	if n := len(attempts); n > 0 && attempts[n-1].Number == b.Attempt && attempts[n-1].Error == "" && state == job.Succeeded {
		return string(job.Succeeded)
	}
	return string(job.Failed)
}

// mark draws a step that has no duration: in the lane of a node if it concerns one, else in that of
// the slot.
func (d *drawing) mark(step client.Step) {
	lane, kind := d.lane(""), string(step.What)
	switch job.EventKind(step.What) {
	case job.EventKind(client.StepStarted), job.EventKind(client.StepEnded):
		return
	case job.EventTakeover:
		d.chart.Moves = append(d.chart.Moves, Move{X: d.axis.at(step.Time), FromY: d.lane(step.Peer).Mid, ToY: d.lane(step.Node).Mid})
		return
	case job.EventRefused:
		lane = d.lane(step.Node)
	case job.EventFenced:
		lane = d.lane(step.Peer)
	}
	d.chart.Marks = append(d.chart.Marks, Mark{X: d.axis.at(step.Time), Y: lane.Mid, Kind: kind, Text: printable.Clip(step.Text, 300)})
}

// Left, Right, Upper and Lower are the edges of a mark.
func (m Mark) Left() int  { return m.X - 5 }
func (m Mark) Right() int { return m.X + 5 }
func (m Mark) Upper() int { return m.Y - 5 }
func (m Mark) Lower() int { return m.Y + 5 }
