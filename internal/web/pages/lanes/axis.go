package lanes

import (
	"math"
	"slices"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

// axis maps the times of a story to coordinates.
type axis struct {
	times []int64 // ascending, in nanoseconds
	xs    []int   // of the times
}

// minGap is the least distance between two times, if there is room for it.
const minGap = 26

func newAxis(s client.Story, now time.Time) (a axis) {
	for _, step := range s.Steps {
		a.times = append(a.times, step.Time.UnixNano())
	}
	if s.State == job.Running {
		a.times = append(a.times, now.UnixNano())
	}
	slices.Sort(a.times)
	a.times = slices.Compact(a.times)
	if len(a.times) == 0 {
		return a
	}
	const room = Width - left - right
	gaps := len(a.times) - 1
	floor := min(float64(minGap), room/float64(max(gaps, 1)))
	roots := make([]float64, gaps)
	sum := 0.0
	for i := range gaps {
		roots[i] = math.Sqrt(float64(a.times[i+1] - a.times[i]))
		sum += roots[i]
	}
	rest := room - floor*float64(gaps)
	x := float64(left)
	a.xs = append(a.xs, left)
	for i := range gaps {
		x += floor + rest*roots[i]/sum
		a.xs = append(a.xs, int(math.Round(x)))
	}
	return a
}

// at returns the coordinate of a time. Between two times of the story it interpolates.
func (a axis) at(t time.Time) int {
	n := t.UnixNano()
	i, ok := slices.BinarySearch(a.times, n)
	switch {
	case ok:
		return a.xs[i]
	case len(a.times) == 0 || i == 0:
		return left
	case i == len(a.times):
		return a.xs[i-1]
	}
	part := float64(n-a.times[i-1]) / float64(a.times[i]-a.times[i-1])
	return a.xs[i-1] + int(part*float64(a.xs[i]-a.xs[i-1]))
}

// ticks returns a tick for each time. Where there is room, its label is the distance from zero; the
// label of zero itself is name.
func (a axis) ticks(zero time.Time, name string, span func(time.Duration) string) (list []Tick) {
	const letter, gap = 7, 12
	free := 0 // from here on there is room for a label
	for i, n := range a.times {
		t := Tick{X: a.xs[i], Anchor: "middle"}
		label := name
		switch d := time.Duration(n - zero.UnixNano()); {
		case d > 0:
			label = "+" + span(d)
		case d < 0:
			label = "−" + span(-d)
		}
		width := letter * len([]rune(label))
		start := t.X - width/2
		switch {
		case start < 0:
			t.Anchor, start = "start", t.X
		case t.X+width/2 > Width:
			t.Anchor, start = "end", t.X-width
		}
		if start >= free {
			t.Label, free = label, start+width+gap
		}
		list = append(list, t)
	}
	return list
}
