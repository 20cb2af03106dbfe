package core_test

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

var rewriteDue = flag.Bool("rewrite-due", false, "write what the due scenarios give into their files")

// dueBase is the base of the scenario files: times in them are offsets to it.
var dueBase = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// TestDueRules runs the scenario files. "job" begins a job, each "plan" adds a stretch to its
// timeline, and "due" calls Due. The lines below are the result. To write the results into the
// files, run the test with -rewrite-due, and review the diff.
func TestDueRules(t *testing.T) {
	t.Parallel()
	runScenarios(t, "due", *rewriteDue, func(t *testing.T) func(io.Writer, string) {
		s := dueScenario{t: t}
		return s.run
	})
}

type dueScenario struct {
	t        *testing.T
	catchUp  job.CatchUp
	timeline []plans.Stretch
}

func (s *dueScenario) run(out io.Writer, line string) {
	words := strings.Fields(line)
	args := map[string]string{}
	var spec []string
	for _, w := range words[1:] {
		if k, v, ok := strings.Cut(w, "="); ok || k == "summary" || k == "paused" {
			args[k] = v
		} else {
			spec = append(spec, w)
		}
	}
	switch words[0] {
	case "job":
		s.timeline = nil
		s.catchUp = job.CatchUp{Policy: job.CatchUpPolicy(args["policy"]), Max: number(s.t, args, "max", 0)}
		s.catchUp.Within = s.at(args, "within").Sub(dueBase)
	case "plan":
		sched, err := job.ParseSchedule("report", job.Plan{Schedule: strings.Join(spec, " "), Spread: s.at(args, "spread").Sub(dueBase)})
		if err != nil {
			s.t.Fatal(err)
		}
		stretch := plans.Stretch{Schedule: sched, After: s.at(args, "from"), Paused: has(args, "paused")}
		if has(args, "until") {
			stretch.Until = s.at(args, "until")
		}
		s.timeline = append(s.timeline, stretch)
	case "due":
		timeline := slices.Clone(s.timeline)
		for i := range timeline {
			if after := s.at(args, "after"); i == 0 || timeline[i].After.Before(after) {
				timeline[i].After = after
			}
		}
		due := plans.Due(timeline, s.catchUp, s.at(args, "now"), job.DefaultHorizon)
		s.print(out, due, has(args, "summary"))
	default:
		s.t.Fatalf("no such command: %q", line)
	}
}

func (s *dueScenario) at(args map[string]string, name string) time.Time {
	if !has(args, name) {
		return dueBase
	}
	return offset(s.t, args, name, "")
}

func (s *dueScenario) print(out io.Writer, due []plans.DueSlot, summary bool) {
	if len(due) == 0 {
		fmt.Fprintln(out, "  nothing")
	}
	for len(due) > 0 {
		n := 1
		for summary && n < len(due) && is(due[n]) == is(due[0]) {
			n++
		}
		first, last := due[0], due[n-1]
		text := first.At.Format(time.DateTime)
		if n > 1 {
			text += fmt.Sprintf(" to %s, %d slots", last.At.Format(time.TimeOnly), n)
		}
		at := first.At
		if first.Missed > 0 {
			at = first.Last // a range is due with its last slot
		}
		if delay := first.Due.Sub(at); delay != 0 {
			text += fmt.Sprintf(" due %s", first.Due.Format(time.TimeOnly))
		}
		fmt.Fprintf(out, "  %s %s\n", text, is(first))
		due = due[n:]
	}
}

func is(d plans.DueSlot) string {
	switch {
	case d.Missed > 0:
		return fmt.Sprintf("range of %d to %s", d.Missed, d.Last.Format(time.TimeOnly))
	case d.CaughtUp:
		return "caught up"
	}
	return "on time"
}

// Due returns each slot of a window once. If a timeline is cut into two stretches of one plan, the
// result is the same.
func TestDueReturnsEverySlotOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := rapid.SampledFrom([]string{"* * * * * *", "*/7 * * * * *", "* * * * *", "0 */3 * * *"}).Draw(t, "spec")
		sched, err := job.ParseSchedule("report", job.Plan{Schedule: spec, Spread: time.Duration(rapid.IntRange(0, 600).Draw(t, "spread")) * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		second := func(name string, most int) time.Time {
			return dueBase.Add(time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Second)
		}
		after, now := second("after", 3600), second("now", 3*3600)
		c := job.CatchUp{
			Policy: rapid.SampledFrom([]job.CatchUpPolicy{job.CatchUpLatest, job.CatchUpAll, job.CatchUpNone}).Draw(t, "policy"),
			Max:    rapid.IntRange(1, 1000).Draw(t, "max"),
		}
		whole := plans.Due([]plans.Stretch{{Schedule: sched, After: after}}, c, now, job.DefaultHorizon)
		cut := second("cut", 3*3600)
		if cut.After(after) {
			halves := plans.Due([]plans.Stretch{{Schedule: sched, After: after, Until: cut}, {Schedule: sched, After: cut}}, c, now, job.DefaultHorizon)
			if !slices.Equal(whole, halves) {
				t.Fatalf("cut at %v:\n%v\nwhole:\n%v", cut, halves, whole)
			}
		}
		want := map[time.Time]bool{}
		for at := range sched.Between(after, now.Add(-sched.Delay())) {
			want[at] = true
		}
		runs, ranges := 0, 0
		for _, d := range whole {
			if d.CaughtUp {
				runs++
			}
			if late := now.Sub(d.Due) > plans.LateAfter; late != (d.CaughtUp || d.Missed > 0) {
				t.Fatalf("%v is %s", d.At, is(d))
			}
			last := d.At
			if d.Missed > 0 {
				last = d.Last
				ranges++
			}
			n := 0
			for at := range sched.Between(d.At.Add(-time.Second), last) {
				if !want[at] {
					t.Fatalf("%v came up twice, or should not", at)
				}
				delete(want, at)
				n++
			}
			if n != max(d.Missed, 1) {
				t.Fatalf("%v stands for %d slots and holds %d", d.At, d.Missed, n)
			}
		}
		if ranges > 1 || ranges == 1 && whole[len(whole)-1].Missed == 0 {
			t.Fatalf("%d ranges, want one at most, and after all that runs: %v", ranges, whole)
		}
		if len(want) > 0 {
			t.Fatalf("%d slots did not come up, among them %v", len(want), slices.Collect(maps.Keys(want))[0])
		}
		most := map[job.CatchUpPolicy]int{job.CatchUpLatest: 1, job.CatchUpAll: c.Max, job.CatchUpNone: 0}[c.Policy]
		if runs > most {
			t.Fatalf("%d slots are caught up by %+v", runs, c)
		}
	})
}
