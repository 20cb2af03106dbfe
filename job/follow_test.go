package job

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAJobIsStartedByOneThing(t *testing.T) {
	t.Parallel()
	on := On{Stream: "ORDERS", Subject: "orders.>"}
	for name, c := range map[string]struct {
		job   Job
		wrong string
	}{
		"after one":             {Job{After: []string{"a"}}, ""},
		"after two":             {Job{After: []string{"a", "b"}}, ""},
		"on messages":           {Job{On: on}, ""},
		"with shards":           {Job{After: []string{"a"}, Shards: 3}, ""},
		"nothing":               {Job{}, "schedule"},
		"schedule and after":    {Job{Schedule: "@daily", After: []string{"a"}}, "after: the job has a schedule too"},
		"schedule and on":       {Job{Schedule: "@daily", On: on}, "on: the job has a schedule too"},
		"after and on":          {Job{After: []string{"a"}, On: on}, "after and on at once"},
		"after itself":          {Job{After: []string{"a", "me"}}, "cannot come after itself"},
		"twice":                 {Job{After: []string{"a", "b", "a"}}, `"a" is in it twice`},
		"no name":               {Job{After: []string{"a:b"}}, `job name "a:b"`},
		"too many":              {Job{After: slices.Repeat([]string{"a"}, MaxAfter+1)}, "33 jobs, at most 32"},
		"timezone":              {Job{After: []string{"a"}, Timezone: "Europe/Berlin"}, "timezone: it is about a schedule"},
		"spread":                {Job{On: on, Spread: time.Minute}, "spread: it is about a schedule"},
		"until":                 {Job{On: on, Until: time.Now()}, "until: it is about a schedule"},
		"catch-up":              {Job{On: on, CatchUp: CatchUp{Policy: CatchUpAll}}, "catch_up: it is about a schedule"},
		"no stream":             {Job{On: On{Subject: "orders.paid"}}, "on.stream"},
		"a stream with dots":    {Job{On: On{Stream: "OR.DERS", Subject: "orders.paid"}}, "on.stream"},
		"no subject":            {Job{On: On{Stream: "ORDERS"}}, "on.subject"},
		"an empty token":        {Job{On: On{Stream: "ORDERS", Subject: "orders..paid"}}, "words with dots"},
		"the rest in the midst": {Job{On: On{Stream: "ORDERS", Subject: "orders.>.paid"}}, "at the end"},
		"a line break":          {Job{On: On{Stream: "ORDERS", Subject: "orders\r\npaid"}}, "on.subject"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.job.Name = "me"
			err := c.job.Validate()
			switch {
			case c.wrong == "" && err != nil:
				t.Error(err)
			case c.wrong != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("got %v, want %q in it", err, c.wrong)
			}
		})
	}
}

func TestAJobThatSomethingElseStartsHasNoSlotsOfItsOwn(t *testing.T) {
	t.Parallel()
	j := Job{Name: "load", After: []string{"extract"}, Shards: 2}
	s, err := ParseSchedule(j.Name, j.Plan())
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
	var back Job
	if err := json.Unmarshal(data, &back); err != nil || !slices.Equal(back.After, j.After) || back.Validate() != nil {
		t.Errorf("%s is read as %+v, %v", data, back, err)
	}
	if j.Overlap = ""; (Job{On: On{Stream: "A", Subject: "a"}}).WithDefaults().Overlap != OverlapAllow || j.WithDefaults().Overlap != OverlapSkip {
		t.Error("messages run beside each other by default, and nothing else does")
	}
}

func TestCirclesAreFound(t *testing.T) {
	t.Parallel()
	// A way along the names, each after the one before it, has a circle if and only
	// if it is closed.
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(t, "n")
		jobs := make([]Job, n)
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
			at := slices.IndexFunc(jobs, func(j Job) bool { return j.Name == circle[i] })
			if !slices.Contains(jobs[at].After, circle[i+1]) {
				t.Fatalf("%v: %s does not come after %s", circle, circle[i], circle[i+1])
			}
		}
	})
}

func TestWhatFollowsIsNamedAfterWhatItComesAfter(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	e := Entry{Revision: 9, Time: at.Add(-time.Hour), Definition: Definition{Job: Job{Name: "load", After: []string{"a", "b"}, Shards: 2}}}
	done := func(name string, after time.Duration, s State) Record {
		return Record{Slot: NewSlot(name, at), State: s, Finished: at.Add(after)}
	}
	d := Delivery{Message: Message{Slot: NewSlot("a", at).Part(3, 3), Backfill: true, Offer: 2}}
	before := []Record{done("a", 2*time.Minute, Succeeded), done("b", time.Minute, Succeeded)}
	got := Chain(e, before, d)
	if len(got) != 2 {
		t.Fatalf("got %+v, want a message for each shard", got)
	}
	for i, m := range got {
		want := Message{Slot: NewSlot("load", at).Part(i+1, 2), JobRevision: 9, Due: at.Add(2 * time.Minute), Chained: true, Backfill: true, CaughtUp: true}
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
	for _, s := range []State{Running, Retrying, Failed, Skipped, Missed, Expired, Cancelled} {
		if m := Chain(e, []Record{before[0], done("b", time.Minute, s)}, d); m != nil {
			t.Errorf("%v although b is %s", m, s)
		}
	}
}

// An edit of the job, a moment after what it comes after has succeeded, takes no turn
// from it; and it has none from before it came after anything.
func TestAnEditTakesNoTurn(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	j := Job{Name: "load", After: []string{"a"}}
	old := j
	old.Shards = 2
	r := Record{Slot: NewSlot("a", at), State: Succeeded, Finished: at.Add(time.Second)}
	d := Delivery{Message: Message{Slot: r.Slot}}
	for name, c := range map[string]struct {
		past Job
		want int
	}{"another number of shards": {old, 1}, "a schedule before": {Job{Name: "load", Schedule: "@hourly"}, 0}} {
		e := Entry{Revision: 9, Time: at.Add(2 * time.Second), Definition: Definition{Job: j, Past: []PastPlan{{c.past.Plan(), at.Add(-time.Hour), at.Add(2 * time.Second)}}}}
		if got := Chain(e, []Record{r}, d); len(got) != c.want {
			t.Errorf("%s: %v follows, want %d messages", name, got, c.want)
		}
	}
}

// A chained slot has another job's instant, and another's time as its due time.
func TestAChainedSlotIsJudgedByTheJobAsItStands(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	chained := Job{Name: "load", After: []string{"a"}, Deadline: time.Minute}
	for name, c := range map[string]struct {
		job    Job
		edit   func(*Delivery, *View)
		action Action
		state  State
		reason string
	}{
		"as published":    {chained, nil, Start, Running, ""},
		"edited since":    {Job{Name: "load", After: []string{"b"}}, func(_ *Delivery, v *View) { v.Entry.Revision = 99 }, Start, Running, ""},
		"split since":     {Job{Name: "load", After: []string{"a"}, Shards: 4}, func(_ *Delivery, v *View) { v.Entry.Revision = 99 }, Start, Running, ""},
		"planned since":   {Job{Name: "load", Schedule: "@hourly"}, func(_ *Delivery, v *View) { v.Entry.Revision = 99; v.Entry.Time = at.Add(time.Hour) }, End, Cancelled, "definition changed"},
		"a clock behind":  {chained, func(d *Delivery, _ *View) { d.Due = d.Published.Add(time.Second) }, Start, Running, ""},
		"long on its way": {chained, func(d *Delivery, v *View) { d.Due = at; v.Now = at.Add(2 * time.Hour) }, End, Expired, "not started within its deadline"},
		"due long before": {chained, func(d *Delivery, _ *View) { d.Due = d.Due.Add(-time.Hour) }, Start, Running, ""},
		"paused":          {chained, func(d *Delivery, _ *View) { d.Missed = 1 }, End, Missed, "its turn came while its job was paused"},
		"paused, not yet known": {chained, func(d *Delivery, v *View) {
			v.Entry.Revision, v.Entry.Paused, v.Entry.Pauses = 99, true, []Window{{From: d.Due.Add(-time.Second)}}
		}, End, Missed, "fell due while its job was paused"},
		"not early, but of a token": {chained, func(d *Delivery, _ *View) { d.Slot = Slot{Job: "load", Token: "x"} }, Start, Running, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.job.Overlap = OverlapAllow
			d := Delivery{Message: Message{Slot: NewSlot("load", at), JobRevision: 9, Due: at.Add(30 * time.Minute), Chained: true}, Published: at.Add(30 * time.Minute)}
			v := View{Now: at.Add(30*time.Minute + time.Second), Self: "A", Horizon: 24 * time.Hour, Handles: true,
				Entry: &Entry{Revision: 9, Time: at.Add(-time.Hour), Definition: Definition{Job: c.job}}}
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
