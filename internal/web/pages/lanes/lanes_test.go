package lanes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/web/pages/lanes"
	"github.com/cronce-io/cronce/job"
)

var due = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func at(d time.Duration, what client.StepKind, node string, attempt int, fence uint64) client.Step {
	return client.Step{Time: due.Add(d), What: what, Node: node, Attempt: attempt, Fence: fence, Text: string(what)}
}

// died is a story with a worker that dies, a takeover, a refused completion and a success.
func died() (client.Story, []job.Attempt) {
	takeover := at(22*time.Second, client.StepKind(job.EventTakeover), "b", 0, 0)
	takeover.Peer = "a"
	fenced := at(20*time.Second, client.StepKind(job.EventFenced), "c", 0, 0)
	fenced.Peer = "a"
	s := client.Story{ID: "report:2026-11-21T07:00:00Z", State: job.Succeeded, Due: due, Steps: []client.Step{
		at(0, client.StepDue, "", 0, 0),
		at(2*time.Millisecond, client.StepPublished, "c", 0, 0),
		at(5*time.Millisecond, client.StepStarted, "a", 1, 11),
		fenced,
		at(22*time.Second, client.StepStarted, "b", 2, 15),
		takeover,
		at(23*time.Second, client.StepKind(job.EventRefused), "a", 1, 11),
		at(2*time.Hour, client.StepEnded, "b", 2, 15),
		at(2*time.Hour, client.StepKind(job.Succeeded), "b", 0, 0),
	}}
	return s, []job.Attempt{{Number: 1, Node: "a", Error: "lost"}, {Number: 2, Node: "b"}}
}

// text lists what a chart has, without coordinates.
func text(c lanes.Chart) string {
	var b strings.Builder
	name := func(y int) string {
		for _, l := range c.Lanes {
			if l.Mid == y {
				return "lane " + l.Node
			}
		}
		return fmt.Sprint("no lane at ", y)
	}
	for _, bar := range c.Bars {
		fmt.Fprintf(&b, "bar %d %s fence %d %s for %v\n", bar.Attempt, name(bar.Y+bar.H/2), bar.Fence, bar.How, bar.To.Sub(bar.From))
	}
	for _, m := range c.Marks {
		fmt.Fprintf(&b, "%s %s\n", m.Kind, name(m.Y))
	}
	for _, m := range c.Moves {
		fmt.Fprintf(&b, "from %s to %s\n", name(m.FromY), name(m.ToY))
	}
	return b.String()
}

func TestChartShowsAttemptsTakeoversAndRefusals(t *testing.T) {
	t.Parallel()
	s, attempts := died()
	c := lanes.New(s, attempts, due.Add(time.Hour), time.Duration.String)
	const want = `bar 1 lane a fence 11 lost for 21.995s
bar 2 lane b fence 15 succeeded for 1h59m38s
due lane 
published lane 
fenced lane a
refused lane a
succeeded lane 
from lane a to lane b
`
	if got := text(c); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if c.Ticks[0].Label != "due" || c.Ticks[len(c.Ticks)-1].Label != "+2h0m0s" {
		t.Errorf("ticks %+v", c.Ticks)
	}
}

func TestChartOfARunningSlotEndsNow(t *testing.T) {
	t.Parallel()
	s := client.Story{State: job.Running, Due: due, Steps: []client.Step{at(0, client.StepDue, "", 0, 0), at(time.Second, client.StepStarted, "a", 1, 7)}}
	c := lanes.New(s, []job.Attempt{{Number: 1}}, due.Add(time.Minute), time.Duration.String)
	if b := c.Bars[0]; b.How != "running" || !b.To.Equal(due.Add(time.Minute)) || b.X+b.W < lanes.Width-20 {
		t.Errorf("%+v", b)
	}
}

func TestChartOfNothingHasNoLanes(t *testing.T) {
	t.Parallel()
	if c := lanes.New(client.Story{Why: "There is no job."}, nil, due, time.Duration.String); len(c.Lanes) > 0 || c.Height != 0 {
		t.Errorf("%+v", c)
	}
}

// In every story, all is inside the picture and in the order of time.
func TestChartKeepsTheOrderAndTheFrame(t *testing.T) {
	t.Parallel()
	kinds := []client.StepKind{
		client.StepDue, client.StepPublished, client.StepStarted, client.StepEnded, client.StepReopened, client.StepNext,
		client.StepKind(job.EventFenced), client.StepKind(job.EventTakeover), client.StepKind(job.EventRefused), client.StepKind(job.Failed),
	}
	rapid.Check(t, func(t *rapid.T) {
		s := client.Story{State: rapid.SampledFrom([]job.State{job.Running, job.Failed, job.Succeeded}).Draw(t, "state")}
		if rapid.Bool().Draw(t, "due") {
			s.Due = due
		}
		when := due
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			when = when.Add(time.Duration(rapid.Int64Range(0, int64(30*24*time.Hour)).Draw(t, "later")))
			s.Steps = append(s.Steps, client.Step{
				Time: when, What: rapid.SampledFrom(kinds).Draw(t, "what"), Node: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node"),
				Peer: rapid.SampledFrom([]string{"", "a"}).Draw(t, "peer"), Attempt: rapid.IntRange(0, 4).Draw(t, "attempt"),
			})
		}
		c := lanes.New(s, nil, when.Add(time.Second), time.Duration.String)
		for i, tick := range c.Ticks {
			if tick.X < 0 || tick.X > lanes.Width || i > 0 && tick.X < c.Ticks[i-1].X {
				t.Fatalf("ticks %+v", c.Ticks)
			}
		}
		for _, b := range c.Bars {
			if b.X < 0 || b.X+b.W > lanes.Width || b.Y < 0 || b.Y+b.H > c.Foot || b.W < 1 || b.LabelX < 0 {
				t.Fatalf("bar %+v in a picture of %d", b, c.Height)
			}
		}
		for _, m := range c.Marks {
			if m.X < 0 || m.X > lanes.Width || m.Y < 0 || m.Y > c.Foot {
				t.Fatalf("mark %+v", m)
			}
		}
	})
}
