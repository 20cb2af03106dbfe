package pages

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/web/pages/board"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
)

// strip is a row of bars, one for each slot. It has one path for each state, and so takes only some
// bytes for each slot: a page may show the strips of a hundred jobs.
type strip struct {
	Width int
	Paths []path
	Label string // for screen readers
}

type path struct{ State, D string }

// The measures of a strip.
const stripStep, stripHeight = 5, 20

// newStrip draws runs, with the newest at the right end. A failure is taller than a success, so
// that the strip can be read without colours.
func newStrip(runs []board.Run) strip {
	drawn := map[job.State]*strings.Builder{}
	counts := map[job.State]int{}
	for i, r := range runs {
		b := drawn[r.State]
		if b == nil {
			b = &strings.Builder{}
			drawn[r.State] = b
		}
		top := 8
		switch r.State {
		case job.Failed, job.Expired:
			top = 0
		case job.Skipped, job.Cancelled, job.Missed:
			top = 13
		}
		fmt.Fprintf(b, "M%d %dV%d", (board.Recent-len(runs)+i)*stripStep+2, top, stripHeight)
		counts[r.State]++
	}
	s := strip{Width: board.Recent * stripStep}
	for _, state := range states {
		if b := drawn[state]; b != nil {
			s.Paths = append(s.Paths, path{string(state), b.String()})
		}
	}
	s.Label = "no slot has a record"
	if len(runs) > 0 {
		s.Label = "newest slots: " + countWords(counts)
	}
	return s
}

// states has the states in the order in which they are named.
var states = []job.State{
	job.Succeeded, job.Failed, job.Running, job.Retrying, job.Pending, job.Skipped, job.Missed, job.Expired, job.Cancelled,
}

// countWords lists counts: "58 succeeded, 2 failed".
func countWords(counts map[job.State]int) string {
	var parts []string
	for _, state := range states {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// dots is a chart of a value over time: a dot for each slot.
type dots struct {
	Title  string
	Points []point
	Lines  []gridLine
	Ends   [2]time.Time
}

type point struct {
	X, Y         float64
	State, Title string
}

type gridLine struct {
	Y     float64
	Label string
}

// The size and the margins of a chart, in the units of its viewBox.
const (
	chartWidth, chartHeight = 360.0, 130.0
	chartLeft, chartBottom  = 58.0, 18.0
	chartTop, chartRight    = 8.0, 6.0
)

// sample is a value of a slot.
type sample struct {
	At    time.Time
	State job.State
	Value time.Duration
}

// newDots draws samples, which are ordered by time.
func newDots(title string, samples []sample) dots {
	d := dots{Title: title}
	if len(samples) == 0 {
		return d
	}
	var most time.Duration
	for _, s := range samples {
		most = max(most, s.Value)
	}
	step := niceStep(most)
	top := step * time.Duration(math.Ceil(float64(max(most, 1))/float64(step)))
	y := func(v time.Duration) float64 {
		return round(chartHeight - chartBottom - float64(v)/float64(top)*(chartHeight-chartBottom-chartTop))
	}
	for v := time.Duration(0); v <= top; v += step {
		label := shell.Span(v)
		if v == 0 {
			label = "0"
		}
		d.Lines = append(d.Lines, gridLine{y(v), label})
	}
	d.Ends = [2]time.Time{samples[0].At, samples[len(samples)-1].At}
	length := max(d.Ends[1].Sub(d.Ends[0]), 1)
	for _, s := range samples {
		x := chartLeft + float64(s.At.Sub(d.Ends[0]))/float64(length)*(chartWidth-chartLeft-chartRight-6) + 3
		d.Points = append(d.Points, point{round(x), y(max(s.Value, 0)), string(s.State), fmt.Sprintf("%s: %s, %s", s.At.UTC().Format(time.RFC3339), shell.Span(s.Value), s.State)})
	}
	return d
}

func round(f float64) float64 { return math.Round(f*10) / 10 }

// niceStep returns the distance between the grid lines of a chart up to most, so that there are at
// most four above zero.
func niceStep(most time.Duration) time.Duration {
	steps := []time.Duration{time.Microsecond}
	for _, unit := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		steps = append(steps, unit, 2*unit, 5*unit)
	}
	for _, unit := range []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 10 * time.Hour, 100 * time.Hour} {
		steps = append(steps, unit, 2*unit, 3*unit)
	}
	i, _ := slices.BinarySearchFunc(steps, most, func(s, most time.Duration) int { return cmp.Compare(4*s, most) })
	return steps[min(i, len(steps)-1)]
}

// plural formats a count: "1 slot", "2 slots".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// are begins a sentence about a number of slots: "3 are".
func are(n int) string {
	switch n {
	case 0:
		return "None is"
	case 1:
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}
