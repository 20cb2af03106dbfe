package verify_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/check/verify"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// noon is the broker's time in these tests; the registry is a day old and the
// producers are up to date.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func entry(name, schedule string) plans.Entry {
	return plans.Entry{Definition: plans.Definition{Job: job.Job{Name: name, Schedule: schedule, Overlap: job.OverlapAllow}}, Revision: 5, Time: ago(24 * time.Hour)}
}

// hours returns the range of most tests: six slots of an hourly job, 07:00 to 12:00.
func hours() verify.Config {
	return verify.Config{
		From: ago(5*time.Hour + 30*time.Minute), To: noon.Add(time.Second), Now: noon.Add(time.Minute),
		Watermark: exchange.Watermark{Time: noon.Add(time.Minute), Revision: 9},
		Nodes: []exchange.NodeEvent{
			{Name: "live", Time: noon.Add(50 * time.Second), Node: exchange.Node{State: exchange.NodeAlive, Lease: 20 * time.Second}},
			{Name: "silent", Time: ago(time.Hour), Node: exchange.Node{State: exchange.NodeAlive, Lease: 20 * time.Second}},
			{Name: "fenced", Time: noon.Add(50 * time.Second), Node: exchange.Node{State: exchange.NodeFenced, Lease: 20 * time.Second}},
		},
	}
}

func hourly(edit ...func(*plans.Entry)) plans.Entry {
	e := entry("report", "0 * * * *")
	for _, f := range edit {
		f(&e)
	}
	return e
}

func slot(hour int) job.Slot {
	return job.NewSlot("report", time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC))
}

// done is the record of a slot that succeeded 20 ms after it was due.
func done(s job.Slot) job.Record {
	start := s.At.Add(20 * time.Millisecond)
	return job.Record{
		Slot: s, State: job.Succeeded, Due: s.At, Published: s.At, Attempt: 1, MaxAttempts: 3, Node: "live",
		Attempts: []job.Attempt{{Number: 1, Node: "live", Started: start, Finished: start.Add(time.Second)}},
	}
}

func unsettled(s job.Slot, state job.State, node string) job.Record {
	r := done(s)
	r.State, r.Node = state, node
	if state == job.Running {
		r.Attempts[0].Finished = time.Time{}
	} else {
		r.Attempts[0].Error, r.RetryAt = "exit status 1", s.At.Add(time.Minute)
	}
	return r
}

// facts are the inputs of one verification.
type facts struct {
	cfg     verify.Config
	entries []plans.Entry
	events  []job.Event
	waiting []core.Message
	late    map[job.Slot]time.Time // when a message was published; else when it was due
	records []job.Record
	written map[job.Slot]time.Time // when the broker stored them; else that is not known
}

func (f facts) check() *verify.Check {
	c := verify.New(f.cfg, f.entries)
	for _, e := range f.events {
		c.Event(e)
	}
	for _, m := range f.waiting {
		published := m.Due
		if at, ok := f.late[m.Slot]; ok {
			published = at
		}
		c.Waiting(m, published)
	}
	for _, r := range f.records {
		c.Record(r, f.written[r.Slot])
	}
	return c
}

// found formats the problems: "offer missing report:... detail", or "leave ..." with the reason at the
// end if the slot cannot be offered again.
func found(c *verify.Check) []string {
	var lines []string
	for p := range c.Problems() {
		line := fmt.Sprintf("%s %s %s", p.Kind, p.Slot, p.Detail)
		if p.Beyond == "" {
			line = "offer " + line
		} else {
			line = "leave " + line + ": " + p.Beyond
		}
		lines = append(lines, line)
	}
	return lines
}

// perfect is the hourly job with a record for every slot.
func perfect() facts {
	f := facts{cfg: hours(), entries: []plans.Entry{hourly()}}
	for hour := 7; hour <= 12; hour++ {
		f.records = append(f.records, done(slot(hour)))
	}
	return f
}

func (f *facts) lose(hour int) {
	f.records = slices.DeleteFunc(f.records, func(r job.Record) bool { return r.Slot == slot(hour) })
}

func (f *facts) replace(r job.Record) {
	for i := range f.records {
		if f.records[i].Slot == r.Slot {
			f.records[i] = r
		}
	}
}

func (f *facts) wait(s job.Slot, published time.Time) {
	f.waiting = append(f.waiting, core.Message{Slot: s, Due: s.At})
	if f.late == nil {
		f.late = map[job.Slot]time.Time{}
	}
	f.late[s] = published
}

// A slot may have to wait while another slot of its job runs, but not under overlap allow.
func TestWaitingBehindASlotThatRuns(t *testing.T) {
	t.Parallel()
	f := perfect()
	f.replace(unsettled(slot(7), job.Running, "live"))
	f.lose(9)
	f.wait(slot(9), slot(9).At)
	if got := found(f.check()); len(got) != 1 {
		t.Errorf("overlap allow: %q, want one that no worker takes", got)
	}
	f.entries[0].Job.Overlap = "queue"
	if got := found(f.check()); len(got) != 0 {
		t.Errorf("overlap queue: %q, want none", got)
	}
	f.replace(unsettled(slot(7), job.Running, "silent"))
	if got := found(f.check()); len(got) != 2 {
		t.Errorf("overlap queue behind a dead worker: %q, want both", got)
	}
}

func TestReportCounts(t *testing.T) {
	t.Parallel()
	f := perfect()
	f.lose(7)
	f.replace(unsettled(slot(8), job.Running, "live"))
	f.replace(unsettled(slot(9), job.Retrying, "live"))
	f.lose(12)
	f.wait(slot(12), noon)
	failed := done(slot(10))
	failed.State, failed.Attempts[0].Started = job.Failed, slot(10).At.Add(2*time.Second)
	f.replace(failed)
	f.records = append(f.records, done(job.NewSlot("report", slot(9).At.Add(time.Minute))))
	r := f.check().Report()
	if r.Jobs != 1 || r.Slots != 6 || r.Missing != 1 || r.NoOutcome != 1 || r.Doubled != 0 || r.InProgress != 2 || r.Beside != 1 || r.OK() {
		t.Errorf("%+v", r)
	}
	if want := (map[job.State]int{job.Succeeded: 2, job.Failed: 1}); !maps.Equal(r.Outcomes, want) {
		t.Errorf("outcomes %v, want %v", r.Outcomes, want)
	}
	if l := r.Lateness; l.Slots != 5 || l.P50 < 20*time.Millisecond || l.P50 > 22*time.Millisecond || l.P99 != 2*time.Second || l.Max != 2*time.Second {
		t.Errorf("lateness %+v", l)
	}
	if r := perfect().check().Report(); !r.OK() || r.Slots != 6 || r.Outcomes[job.Succeeded] != 6 || len(r.NotJudged) != 0 {
		t.Errorf("a perfect history: %+v", r)
	}
}

func TestNotJudged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit   func(*facts)
		reason string
		slots  int // judged
		left   int // counted as not judged
	}{
		"paused":               {func(f *facts) { pause(&f.entries[0], slot(9).At, time.Time{}) }, "while it is paused", 3, 0},
		"just resumed":         {func(f *facts) { pause(&f.entries[0], slot(9).At, noon.Add(56*time.Second)) }, "due less than 5s ago", 3, 3},
		"created in the range": {func(f *facts) { f.entries[0].Time = slot(9).At }, "a plan that is known", 3, 0},
		"created after it":     {func(f *facts) { f.entries[0].Time = noon.Add(30 * time.Second) }, "a plan that is known", 0, 0},
		"forgotten":            {func(f *facts) { f.cfg.Settings.Retention = 2 * time.Hour }, "before 2026-11-21T10:02:00Z: the ledger forgets after 2h0m0s", 2, 0},
		"just due":             {func(f *facts) { f.cfg.Now = noon.Add(verify.Settle - time.Second) }, "due less than 5s ago", 5, 1},
		"not due yet":          {func(f *facts) { f.cfg.To = noon.Add(time.Hour) }, "after now", 6, 0},
		"no plan":              {func(f *facts) { f.entries[0].Job.Schedule = "nonsense" }, "cannot be computed", 0, 0},
		"deleted": {func(f *facts) {
			f.entries = nil
			f.records = []job.Record{done(slot(9))}
		}, "it was removed", 0, 0},
		"unreadable": {func(f *facts) {
			f.entries, f.cfg.Unreadable = nil, true
			f.records = []job.Record{done(slot(9))}
		}, "no definition of it can be read", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := perfect()
			f.records = nil
			c.edit(&f)
			r := f.check().Report()
			if len(r.NotJudged) != 1 || !strings.Contains(r.NotJudged[0].Reason, c.reason) || r.NotJudged[0].Slots != c.left ||
				!slices.Equal(r.NotJudged[0].Names, []string{"report"}) || r.NotJudged[0].Jobs != 1 {
				t.Errorf("not judged: %+v, want %q", r.NotJudged, c.reason)
			}
			if r.Slots != c.slots || r.Missing != c.slots {
				t.Errorf("%d slots judged, %d missing; want %d", r.Slots, r.Missing, c.slots)
			}
		})
	}
}

func pause(e *plans.Entry, from, to time.Time) {
	e.Paused = to.IsZero()
	e.Pauses = append(e.Pauses, plans.Window{From: from, To: to})
}

// When a pause ends, producers publish the slots that fell due during it.
func TestSlotsOfAPauseShouldExist(t *testing.T) {
	t.Parallel()
	f := perfect()
	f.records = f.records[:2]
	pause(&f.entries[0], slot(9).At, slot(11).At)
	if r := f.check().Report(); r.Slots != 6 || r.Missing != 4 {
		t.Errorf("%d slots, %d missing; want 6 and 4", r.Slots, r.Missing)
	}
}

// A plan has slots while it is in force: after its beginning, up to and including its end.
func TestPlansAsTheyWere(t *testing.T) {
	t.Parallel()
	f := perfect()
	f.records = nil
	e := &f.entries[0]
	e.Past = []plans.PastPlan{{Plan: job.Job{Name: "report", Schedule: "30 * * * *"}.Plan(), From: ago(24 * time.Hour), To: slot(9).At}}
	e.Definition.Since = slot(9).At
	want := []string{"06:30", "07:30", "08:30", "10:00", "11:00", "12:00"}
	var got []string
	for p := range f.check().Problems() {
		got = append(got, p.Slot.At.Format("15:04"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("slots %q, want %q", got, want)
	}
}

// A spread delays the due time. A slot that is not due yet is not missing.
func TestSpreadDelaysTheJudgement(t *testing.T) {
	t.Parallel()
	f := perfect()
	f.lose(12)
	f.entries[0].Job.Spread = 10 * time.Minute
	s, err := job.ParseSchedule("report", f.entries[0].Job.Plan())
	if err != nil || s.Delay() < 2*time.Minute {
		t.Fatalf("the test needs a job whose spread is longer: %v, %v", s.Delay(), err)
	}
	if r := f.check().Report(); r.Missing != 0 || r.Slots != 5 {
		t.Errorf("before it is due: %+v", r)
	}
	f.cfg.Now = noon.Add(s.Delay() + 2*verify.Settle)
	f.cfg.Watermark.Time = f.cfg.Now
	var due []time.Time
	for p := range f.check().Problems() {
		due = append(due, p.Due)
	}
	if len(due) != 1 || !due[0].Equal(noon.Add(s.Delay())) {
		t.Errorf("due %v, want the one of noon with its spread", due)
	}
}

// Messages and records of a second pass settle the problems of the first.
func TestSecondLook(t *testing.T) {
	t.Parallel()
	f := perfect()
	f.lose(8)
	f.lose(9)
	f.lose(10)
	f.replace(unsettled(slot(11), job.Retrying, ""))
	c := f.check()
	if got := found(c); len(got) != 4 {
		t.Fatalf("%q, want four", got)
	}
	c.Waiting(core.Message{Slot: slot(8), Due: slot(8).At}, noon)
	c.Record(done(slot(9)), time.Time{})
	c.Unreadable(slot(10))
	c.Record(done(slot(11)), time.Time{})
	if got := found(c); len(got) != 0 {
		t.Errorf("after the second look: %q", got)
	}
	r := c.Report()
	if r.Slots != 5 || r.InProgress != 1 || r.Outcomes[job.Succeeded] != 4 || len(r.NotJudged) != 1 || r.NotJudged[0].Slots != 1 {
		t.Errorf("%+v", r)
	}
}

func TestOffer(t *testing.T) {
	t.Parallel()
	offer := func(edit func(*facts)) (string, core.Message, []byte) {
		f := perfect()
		f.entries[0].Job.Queue, f.entries[0].Job.Payload = "slow", []byte(`{"n":1}`)
		edit(&f)
		c := f.check()
		for p := range c.Problems() {
			queue, messages, payload := c.Offer(p, "me")
			if len(messages) != 1 {
				t.Fatalf("%d messages", len(messages))
			}
			return queue, messages[0], payload
		}
		t.Fatal("no problem")
		panic("unreachable")
	}
	queue, m, payload := offer(func(f *facts) { f.lose(9) })
	want := core.Message{Slot: slot(9), JobRevision: 5, Node: "me", Due: slot(9).At, CaughtUp: true, Offer: 1}
	if queue != "slow" || m != want || string(payload) != `{"n":1}` {
		t.Errorf("offers %+v %s to %s", m, payload, queue)
	}
	queue, m, _ = offer(func(f *facts) {
		r := unsettled(slot(9), job.Retrying, "")
		r.Queue = "old"
		f.replace(r)
	})
	if queue != "old" || m != want {
		t.Errorf("a slot with a record: offers %+v to %s", m, queue)
	}
	want.CaughtUp, want.Missed, want.MissedLast, want.Slot.Range = false, 1, want.Slot.At, true
	for name, c := range map[string]job.CatchUp{"none": {Policy: job.CatchUpNone}, "within": {Within: time.Hour}} {
		if _, m, _ = offer(func(f *facts) { f.lose(9); f.entries[0].Job.CatchUp = c }); m != want {
			t.Errorf("catch up %s: offers %+v", name, m)
		}
	}
	if _, m, _ = offer(func(f *facts) { f.lose(11); f.entries[0].Job.CatchUp.Within = 2 * time.Hour }); m.Missed != 0 {
		t.Errorf("within its catch up: offers %+v", m)
	}
}

// If a job that runs every second has no record for a week, each slot takes little more than a bit.
func TestAWeekOfSeconds(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * time.Hour
	e := entry("report", "* * * * * *")
	e.Time = ago(2 * week)
	cfg := hours()
	cfg.From, cfg.To, cfg.Now, cfg.Settings.Retention = ago(week), noon, noon.Add(time.Minute), 2*week
	n := 0
	c := verify.New(cfg, []plans.Entry{e})
	for range c.Problems() {
		n++
	}
	if want := int(week / time.Second); n != want || c.Report().Missing != want {
		t.Errorf("%d missing, want %d", n, want)
	}
	for at := cfg.From; at.Before(cfg.To); at = at.Add(time.Second) {
		c.Record(job.Record{Slot: job.NewSlot("report", at), State: job.Succeeded}, time.Time{})
	}
	if r := c.Report(); !r.OK() || r.Outcomes[job.Succeeded] != int(week/time.Second) {
		t.Errorf("%+v", r)
	}
}

func ExampleCheck() {
	c := verify.New(hours(), []plans.Entry{hourly()})
	for hour := 7; hour < 12; hour++ {
		c.Record(done(slot(hour)), time.Time{})
	}
	for p := range c.Problems() {
		fmt.Println(p.Kind, p.Slot, p.Detail)
	}
	// Output: missing report:2026-11-21T12:00:00Z neither a record nor a message
}

// A split slot is missing if the whole has no record. Each shard is judged by itself. A repair offers all
// shards.
func TestSlotsOfShards(t *testing.T) {
	t.Parallel()
	shards := func(edit func(f *facts)) *facts {
		f := perfect()
		f.entries[0].Job.Shards = 2
		edit(&f)
		return &f
	}
	whole := func(state job.State) job.Record {
		r := unsettled(slot(9), state, "")
		r.Shards = 2
		return r
	}
	shard := func(i int, state job.State, node string) job.Record {
		r := unsettled(slot(9), state, node)
		r.Slot = r.Slot.WithShard(i, 2)
		return r
	}
	for name, c := range map[string]struct {
		facts *facts
		want  int // problems
	}{
		"ended": {shards(func(f *facts) {
			f.records = append(f.records, shard(1, job.Succeeded, "live"), shard(2, job.Succeeded, "live"))
		}), 0},
		"missing": {shards(func(f *facts) { f.lose(9) }), 1},
		"one runs": {shards(func(f *facts) {
			f.replace(whole(job.Running))
			f.records = append(f.records, shard(1, job.Running, "live"))
		}), 0},
		"one lies with a dead": {shards(func(f *facts) {
			f.replace(whole(job.Running))
			f.records = append(f.records, shard(1, job.Running, "fenced"))
		}), 1},
		"no worker concludes it": {shards(func(f *facts) { f.replace(whole(job.Running)) }), 1},
	} {
		check := c.facts.check()
		got := found(check)
		if len(got) != c.want {
			t.Errorf("%s: %q, want %d", name, got, c.want)
		}
		for p := range check.Problems() {
			if _, messages, _ := check.Offer(p, "me"); p.Slot.Shards == 0 && len(messages) != 2 {
				t.Errorf("%s: offered in %d messages, want one for each shard", name, len(messages))
			}
		}
	}
}

// Each shard of a slot has an outcome of its own. If one shard failed, and so the whole, the shards that
// succeeded are not doubled. A shard that got a second outcome is doubled.
func TestAShardIsDoubledByItsOwnOutcomesOnly(t *testing.T) {
	t.Parallel()
	told := func(kind job.EventKind, s job.Slot) job.Event {
		return job.Event{V: codec.Version, Kind: kind, ID: s.ID(), Job: s.Job, Reopened: kind == job.EventAlert}
	}
	one, two := slot(9).WithShard(1, 2), slot(9).WithShard(2, 2)
	for name, c := range map[string]struct {
		events []job.Event
		states [3]job.State // of the whole and its shards
		want   []string
	}{
		"one shard failed":  {[]job.Event{told(job.EventFailed, two), told(job.EventFailed, slot(9))}, [3]job.State{job.Failed, job.Succeeded, job.Failed}, nil},
		"one was cancelled": {[]job.Event{told(job.EventCancelled, two), told(job.EventCancelled, slot(9))}, [3]job.State{job.Cancelled, job.Succeeded, job.Cancelled}, nil},
		"one was given a new start": {
			[]job.Event{told(job.EventFailed, two), told(job.EventFailed, slot(9)), told(job.EventAlert, slot(9)), told(job.EventAlert, two)},
			[3]job.State{job.Succeeded, job.Succeeded, job.Succeeded}, nil,
		},
		"one failed, and then succeeded": {[]job.Event{told(job.EventFailed, two)}, [3]job.State{job.Succeeded, job.Succeeded, job.Succeeded}, []string{two.ID()}},
		"one ended twice":                {[]job.Event{told(job.EventFailed, one), told(job.EventCancelled, one)}, [3]job.State{job.Failed, job.Failed, job.Succeeded}, []string{one.ID()}},
		"the whole failed, and then succeeded": {
			[]job.Event{told(job.EventFailed, slot(9))}, [3]job.State{job.Succeeded, job.Succeeded, job.Succeeded}, []string{slot(9).ID()},
		},
	} {
		f := perfect()
		f.entries[0].Job.Shards = 2
		f.events = c.events
		for i, s := range []job.Slot{slot(9), one, two} {
			r := done(s)
			if r.State = c.states[i]; r.State != job.Succeeded {
				r.Error, r.Attempts[0].Error = "boom", "boom"
			}
			if i == 0 {
				r.Shards, r.Attempts = 2, nil
				f.replace(r)
			} else {
				f.records = append(f.records, r)
			}
		}
		var got []string
		for p := range f.check().Problems() {
			if p.Kind != verify.Doubled {
				t.Errorf("%s: %+v", name, p)
			}
			got = append(got, p.Slot.ID())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: doubled %q, want %q", name, got, c.want)
		}
	}
}
