package core

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

func TestJobHasOneKindOfStart(t *testing.T) {
	t.Parallel()
	on := job.On{Stream: "ORDERS", Subject: "orders.>"}
	for name, c := range map[string]struct {
		job   job.Job
		wrong string
	}{
		"after one":             {job.Job{After: []string{"a"}}, ""},
		"after two":             {job.Job{After: []string{"a", "b"}}, ""},
		"on messages":           {job.Job{On: on}, ""},
		"with shards":           {job.Job{After: []string{"a"}, Shards: 3}, ""},
		"on demand":             {job.Job{Schedule: job.OnDemand}, ""},
		"on demand with shards": {job.Job{Schedule: job.OnDemand, Shards: 3}, ""},
		"nothing":               {job.Job{}, `@daily or "@every 90s"; after or on, which start the job instead; or "none"`},
		"on demand and after":   {job.Job{Schedule: job.OnDemand, After: []string{"a"}}, "after: the job has a schedule too"},
		"on demand and on":      {job.Job{Schedule: job.OnDemand, On: on}, "on: the job has a schedule too"},
		"on demand in a zone":   {job.Job{Schedule: job.OnDemand, Timezone: "Europe/Berlin"}, "timezone: it applies to schedules only, and this job has none (when triggered)"},
		"on demand from":        {job.Job{Schedule: job.OnDemand, From: time.Now()}, "from: it applies to schedules only"},
		"on demand excluded":    {job.Job{Schedule: job.OnDemand, Exclude: []string{"2026-12-25"}}, "exclude: it applies to schedules only"},
		"on demand caught up":   {job.Job{Schedule: job.OnDemand, CatchUp: job.CatchUp{Policy: job.CatchUpNone}}, "catch_up: it applies to schedules only"},
		"schedule and after":    {job.Job{Schedule: "@daily", After: []string{"a"}}, "after: the job has a schedule too"},
		"schedule and on":       {job.Job{Schedule: "@daily", On: on}, "on: the job has a schedule too"},
		"after and on":          {job.Job{After: []string{"a"}, On: on}, "after and on at once"},
		"after itself":          {job.Job{After: []string{"a", "me"}}, "cannot come after itself"},
		"twice":                 {job.Job{After: []string{"a", "b", "a"}}, `"a" is listed twice`},
		"no name":               {job.Job{After: []string{"a:b"}}, `job name "a:b"`},
		"too many":              {job.Job{After: slices.Repeat([]string{"a"}, job.MaxAfter+1)}, "33 jobs, at most 32"},
		"timezone":              {job.Job{After: []string{"a"}, Timezone: "Europe/Berlin"}, "timezone: it applies to schedules only"},
		"spread":                {job.Job{On: on, Spread: time.Minute}, "spread: it applies to schedules only"},
		"until":                 {job.Job{On: on, Until: time.Now()}, "until: it applies to schedules only"},
		"catch-up":              {job.Job{On: on, CatchUp: job.CatchUp{Policy: job.CatchUpAll}}, "catch_up: it applies to schedules only"},
		"no stream":             {job.Job{On: job.On{Subject: "orders.paid"}}, "on.stream"},
		"a stream with dots":    {job.Job{On: job.On{Stream: "OR.DERS", Subject: "orders.paid"}}, "on.stream"},
		"no subject":            {job.Job{On: job.On{Stream: "ORDERS"}}, "on.subject"},
		"an empty token":        {job.Job{On: job.On{Stream: "ORDERS", Subject: "orders..paid"}}, "words with dots"},
		"the rest in the midst": {job.Job{On: job.On{Stream: "ORDERS", Subject: "orders.>.paid"}}, "at the end"},
		"a line break":          {job.Job{On: job.On{Stream: "ORDERS", Subject: "orders\r\npaid"}}, "on.subject"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.job.Name = "me"
			err := c.job.Validate()
			switch {
			case c.wrong == "" && err != nil:
				t.Error(err)
			case c.wrong != "" && (!errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("got %v, want %q in it", err, c.wrong)
			}
		})
	}
}

func TestJobWithoutAScheduleHasNoPlannedSlots(t *testing.T) {
	t.Parallel()
	for _, j := range []job.Job{
		{Name: "load", After: []string{"extract"}, Shards: 2},
		{Name: "load", Schedule: job.OnDemand},
	} {
		testNoSlots(t, j)
	}
	if (job.Job{On: job.On{Stream: "A", Subject: "a"}}).WithDefaults().Overlap != job.OverlapAllow {
		t.Error("messages do not run beside each other by default")
	}
}

func testNoSlots(t *testing.T, j job.Job) {
	t.Helper()
	s, err := job.ParseSchedule(j.Name, j.Plan())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	if at := s.Next(now); !at.IsZero() || s.Includes(now) || len(s.Last(time.Time{}, now, 5)) > 0 || s.Count(time.Time{}, now) > 0 {
		t.Errorf("it has one at %v", at)
	}
	data, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var back job.Job
	if err := json.Unmarshal(data, &back); err != nil || !slices.Equal(back.After, j.After) || back.Schedule != j.Schedule || back.Validate() != nil {
		t.Errorf("%s is read as %+v, %v", data, back, err)
	}
	var parser plans.Parser
	if parsed, err := parser.Schedule(j.Name, j.Plan()); err != nil || !parsed.Next(now).IsZero() || j.Plan().Scheduled() {
		t.Errorf("the parser finds a slot of %+v: %v", j, err)
	}
	if j.WithDefaults().Overlap != job.OverlapSkip {
		t.Error("runs are beside each other by default")
	}
}

func TestCycleOfJobsIsFound(t *testing.T) {
	t.Parallel()
	// Each job comes only after jobs with earlier names, so there is no cycle. Then the test adds
	// one: each job from some job on comes after its predecessor, and that job after the last one.
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(t, "n")
		jobs := make([]job.Job, n)
		for i := range jobs {
			jobs[i].Name = string(rune('a' + i))
			for before := range i {
				if rapid.Bool().Draw(t, "edge") {
					jobs[i].After = append(jobs[i].After, jobs[before].Name)
				}
			}
		}
		jobs[0].After = append(jobs[0].After, "unknown")
		shuffled := rapid.Permutation(jobs).Draw(t, "order")
		if err := CheckCycle(shuffled); err != nil {
			t.Fatalf("%v in %+v", err, jobs)
		}
		from, to := rapid.IntRange(0, n-2).Draw(t, "from"), n-1
		jobs[from].After = append(jobs[from].After, jobs[to].Name)
		for i := from + 1; i <= to; i++ {
			jobs[i].After = append(jobs[i].After, jobs[i-1].Name)
		}
		circle := Cycle(jobs)
		if len(circle) < 3 || circle[0] != circle[len(circle)-1] {
			t.Fatalf("got %v of %+v", circle, jobs)
		}
		for i := range len(circle) - 1 {
			at := slices.IndexFunc(jobs, func(j job.Job) bool { return j.Name == circle[i] })
			if !slices.Contains(jobs[at].After, circle[i+1]) {
				t.Fatalf("%v: %s does not come after %s", circle, circle[i], circle[i+1])
			}
		}
	})
}

func TestChainedSlotHasTheInstantOrTokenOfTheSlotItFollows(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	e := plans.Entry{Revision: 9, Time: at.Add(-time.Hour), Definition: plans.Definition{Job: job.Job{Name: "load", After: []string{"a", "b"}, Shards: 2}}}
	done := func(name string, after time.Duration, s job.State) job.Record {
		return job.Record{Slot: job.NewSlot(name, at), State: s, Finished: at.Add(after)}
	}
	d := Delivery{Message: Message{Slot: job.NewSlot("a", at).WithShard(3, 3), Backfill: true, Offer: 2}}
	before := []job.Record{done("a", 2*time.Minute, job.Succeeded), done("b", time.Minute, job.Succeeded)}
	got := Chain(e, before, d)
	if len(got) != 2 {
		t.Fatalf("got %+v, want a message for each shard", got)
	}
	for i, m := range got {
		want := Message{Slot: job.NewSlot("load", at).WithShard(i+1, 2), JobRevision: 9, Due: at.Add(2 * time.Minute), Chained: true, Backfill: true, CaughtUp: true}
		if m != want {
			t.Errorf("got %+v, want %+v", m, want)
		}
		if back, err := ParseMessage(m.Header()); err != nil || back != m {
			t.Errorf("%v is read as %+v, %v", m.Header(), back, err)
		}
	}
	if m := Chain(e, before[:1], d); m != nil {
		t.Errorf("%v before b has a record", m)
	}
	for _, s := range []job.State{job.Running, job.Retrying, job.Failed, job.Skipped, job.Missed, job.Expired, job.Cancelled} {
		if m := Chain(e, []job.Record{before[0], done("b", time.Minute, s)}, d); m != nil {
			t.Errorf("%v although b is %s", m, s)
		}
	}
}

// A job is edited a moment after the job that it comes after has succeeded. The edit does not lose
// the chained slot. But if the job came after no other job at that time, it has no such slot.
func TestEditOfAJobLosesNoChainedSlot(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	j := job.Job{Name: "load", After: []string{"a"}}
	old := j
	old.Shards = 2
	r := job.Record{Slot: job.NewSlot("a", at), State: job.Succeeded, Finished: at.Add(time.Second)}
	d := Delivery{Message: Message{Slot: r.Slot}}
	for name, c := range map[string]struct {
		past job.Job
		want int
	}{"another number of shards": {old, 1}, "a schedule before": {job.Job{Name: "load", Schedule: "@hourly"}, 0}} {
		e := plans.Entry{Revision: 9, Time: at.Add(2 * time.Second), Definition: plans.Definition{Job: j, Past: []plans.PastPlan{{Plan: c.past.Plan(), From: at.Add(-time.Hour), To: at.Add(2 * time.Second)}}}}
		if got := Chain(e, []job.Record{r}, d); len(got) != c.want {
			t.Errorf("%s: %v follows, want %d messages", name, got, c.want)
		}
	}
}

// A chained slot has the instant of another job. Its due time is the end of that job's slot.
func TestChainedSlotIsJudgedByTheCurrentDefinition(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	chained := job.Job{Name: "load", After: []string{"a"}, Deadline: time.Minute}
	for name, c := range map[string]struct {
		job    job.Job
		edit   func(*Delivery, *View)
		action Action
		state  job.State
		reason string
	}{
		"as published":    {chained, nil, Start, job.Running, ""},
		"edited since":    {job.Job{Name: "load", After: []string{"b"}}, func(_ *Delivery, v *View) { v.Entry.Revision = 99 }, Start, job.Running, ""},
		"split since":     {job.Job{Name: "load", After: []string{"a"}, Shards: 4}, func(_ *Delivery, v *View) { v.Entry.Revision = 99 }, Start, job.Running, ""},
		"planned since":   {job.Job{Name: "load", Schedule: "@hourly"}, func(_ *Delivery, v *View) { v.Entry.Revision = 99; v.Entry.Time = at.Add(time.Hour) }, End, job.Cancelled, "definition changed"},
		"a clock behind":  {chained, func(d *Delivery, _ *View) { d.Due = d.Published.Add(time.Second) }, Start, job.Running, ""},
		"long on its way": {chained, func(d *Delivery, v *View) { d.Due = at; v.Now = at.Add(2 * time.Hour) }, End, job.Expired, "not started within its deadline"},
		"due long before": {chained, func(d *Delivery, _ *View) { d.Due = d.Due.Add(-time.Hour) }, Start, job.Running, ""},
		"paused":          {chained, func(d *Delivery, _ *View) { d.Missed = 1 }, End, job.Missed, "its turn came while its job was paused"},
		"paused, not yet known": {chained, func(d *Delivery, v *View) {
			v.Entry.Revision, v.Entry.Paused, v.Entry.Pauses = 99, true, []plans.Window{{From: d.Due.Add(-time.Second)}}
		}, End, job.Missed, "fell due while its job was paused"},
		"not early, but of a token": {chained, func(d *Delivery, _ *View) { d.Slot = job.Slot{Job: "load", Token: "x"} }, Start, job.Running, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.job.Overlap = job.OverlapAllow
			d := Delivery{Message: Message{Slot: job.NewSlot("load", at), JobRevision: 9, Due: at.Add(30 * time.Minute), Chained: true}, Published: at.Add(30 * time.Minute)}
			v := View{Now: at.Add(30*time.Minute + time.Second), Self: "A", Horizon: 24 * time.Hour, Handles: true,
				Entry: &plans.Entry{Revision: 9, Time: at.Add(-time.Hour), Definition: plans.Definition{Job: c.job}}}
			if c.edit != nil {
				c.edit(&d, &v)
			}
			s := Decide(d, v)
			if s.Action != c.action || s.Record.State != c.state || !strings.Contains(s.Record.Error, c.reason) {
				t.Errorf("got action %d, %s (%s), want %d, %s (%s)", s.Action, s.Record.State, s.Record.Error, c.action, c.state, c.reason)
			}
		})
	}
}
