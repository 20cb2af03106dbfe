package verify_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/check/verify"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// chained returns the hourly jobs extract and check, whose slots have all succeeded, and the job load,
// which comes after both and has a record for the first five.
func chained() facts {
	load := entry("load", "")
	load.Job.After = []string{"extract", "check"}
	f := facts{cfg: hours(), entries: []plans.Entry{entry("extract", "0 * * * *"), entry("check", "0 * * * *"), load}}
	for hour := 7; hour <= 12; hour++ {
		for _, name := range []string{"extract", "check", "load"} {
			if name != "load" || hour < 12 {
				f.records = append(f.records, ended(name, hour))
			}
		}
	}
	f.cfg.Now = noon.Add(5 * time.Minute)
	return f
}

func ended(name string, hour int) job.Record {
	s := slot(hour)
	s.Job = name
	r := done(s)
	r.Finished = r.Attempts[0].Finished
	return r
}

// edit changes the record of a slot.
func (f *facts) edit(name string, hour int, change func(*job.Record)) {
	for i := range f.records {
		if s := f.records[i].Slot; s.Job == name && s.At.Equal(slot(hour).At) {
			change(&f.records[i])
		}
	}
}

func TestASlotIsMissingThatShouldHaveFollowedFromOthers(t *testing.T) {
	t.Parallel()
	const lost = "offer missing load:2026-11-21T12:00:00Z neither a record nor a message, although extract, check succeeded"
	run := job.Slot{Job: "extract", Token: "k"}
	for name, c := range map[string]struct {
		edit func(*facts)
		want []string
	}{
		"neither a record nor a message": {func(*facts) {}, []string{lost}},
		"alone":                          {func(f *facts) { f.cfg.Jobs = []string{"load"} }, []string{lost}},
		"it waits": {func(f *facts) {
			f.waiting = []core.Message{{Slot: job.NewSlot("load", noon), Due: noon.Add(4 * time.Minute)}}
		}, nil},
		"it has failed":   {func(f *facts) { r := ended("load", 12); r.State = job.Failed; f.records = append(f.records, r) }, nil},
		"its record came": {func(f *facts) { f.records = slices.Insert(f.records, 0, ended("load", 12)) }, nil},
		"one has failed":  {func(f *facts) { f.edit("check", 12, func(r *job.Record) { r.State = job.Failed }) }, nil},
		"a moment ago": {func(f *facts) {
			f.edit("check", 12, func(r *job.Record) { r.Finished = f.cfg.Now.Add(-verify.Patience) })
		}, nil},
		"it came after them later": {func(f *facts) { f.entries[2].Time = noon.Add(time.Minute) }, nil},
		"past the horizon": {func(f *facts) { f.cfg.Settings.Horizon = time.Minute }, []string{
			strings.Replace(lost, "offer", "leave", 1)}},
		"a triggered run": {func(f *facts) {
			f.records = append(f.records, ended("load", 12))
			for _, name := range []string{"extract", "check"} {
				r := ended(name, 12)
				r.Slot = run
				r.Slot.Job = name
				f.records = append(f.records, r)
			}
		}, []string{"offer missing load:@k neither a record nor a message"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := chained()
			c.edit(&f)
			check := f.check()
			got := found(check)
			if len(got) != len(c.want) {
				t.Fatalf("found %q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("found %q, want %q", got[i], want)
				}
			}
		})
	}
}

func TestSlotsThatFollowAreCountedAmongThoseThatShouldExist(t *testing.T) {
	t.Parallel()
	check := chained().check()
	for range check.Problems() {
		continue // each pass over the problems counts the slots only once
	}
	r := check.Report()
	if r.Slots != 18 || r.Beside != 0 || r.Missing != 1 || r.Outcomes[job.Succeeded] != 17 || r.InProgress != 0 {
		t.Errorf("%+v", r)
	}
	check.Record(ended("load", 12), time.Time{}) // looked up again, at the leader
	if r := check.Report(); r.Slots != 18 || r.Beside != 0 || r.Missing != 0 || r.Outcomes[job.Succeeded] != 18 {
		t.Errorf("when its record is found: %+v", r)
	}
}

func TestASlotThatShouldHaveFollowedIsOfferedAsOneThatDid(t *testing.T) {
	t.Parallel()
	f := chained()
	f.entries[2].Job.Shards, f.entries[2].Job.Queue, f.entries[2].Job.Payload = 2, "loads", []byte("{}")
	check := f.check()
	for p := range check.Problems() {
		queue, messages, payload := check.Offer(p, "me")
		if queue != "loads" || len(messages) != 2 || string(payload) != "{}" || !messages[0].Chained || messages[0].Slot != p.Slot.WithShard(1, 2) {
			t.Errorf("offers %+v to %s with %s", messages, queue, payload)
		}
	}
	f = chained()
	f.entries[2].Paused = true
	check = f.check()
	for p := range check.Problems() {
		if _, messages, _ := check.Offer(p, "me"); messages[0].Missed != 1 || !messages[0].Chained {
			t.Errorf("of a paused job: %+v", messages)
		}
	}
}
