package sweep_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// A slot has succeeded, and what follows from it was lost, or its worker did not know the job
// that comes after it yet.
func TestASlotIsOfferedAgainIfTheChainedSlotAfterItIsMissing(t *testing.T) {
	const offered, nothing = true, false
	extract := slot(1)
	check, load := extract, extract
	check.Job, load.Job = "check", "load"
	done := func(s job.Slot, state job.State) job.Record {
		return job.Record{Slot: s, State: state, Node: "w1", Finished: time.Now().Add(-time.Second)}
	}
	for name, c := range map[string]struct {
		make func(*site)
		want bool
	}{
		"all have succeeded":            {func(s *site) {}, offered},
		"it has a record":               {func(s *site) { s.record(done(load, job.Failed)) }, nothing},
		"it runs":                       {func(s *site) { s.record(job.Record{Slot: load, State: job.Running, Node: "alive"}) }, nothing},
		"it waits":                      {func(s *site) { s.publish(core.Message{Slot: load, Chained: true}) }, nothing},
		"a shard of it waits":           {func(s *site) { s.publish(core.Message{Slot: load.WithShard(2, 3), Chained: true}) }, nothing},
		"another has failed":            {func(s *site) { s.record(done(check, job.Failed)) }, nothing},
		"another has not begun":         {func(s *site) { s.after[0].Job.After = append(s.after[0].Job.After, "more") }, nothing},
		"the job came later":            {func(s *site) { s.after[0].Time = time.Now().Add(time.Minute) }, nothing},
		"the job came before the write": {func(s *site) { s.after[0].Time = time.Now().Add(-500 * time.Millisecond) }, nothing},
		"it was long ago":               {func(s *site) { s.shift = 25 * time.Hour }, nothing},
		"it was a moment ago":           {func(s *site) { s.shift = 10 * time.Second }, nothing},
		"nothing comes after that":      {func(s *site) { s.after = nil }, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.after = []plans.Entry{{Time: time.Now().Add(-time.Hour), Definition: plans.Definition{Job: job.Job{Name: "load", After: []string{"report", "check"}}}}}
			s.shift = time.Minute
			s.record(done(check, job.Succeeded))
			s.record(done(extract, job.Succeeded))
			c.make(s)
			before := s.messages()
			s.pass()
			s.pass() // it is offered once
			got := slices.DeleteFunc(s.messages(), func(id string) bool { return slices.Contains(before, id) })
			ours := slices.DeleteFunc(slices.Clone(got), func(id string) bool {
				return !strings.HasPrefix(id, extract.ID()+"/r") && !strings.HasPrefix(id, check.ID()+"/r")
			})
			if len(ours) != len(got) || (len(got) == 1) != c.want || len(got) > 1 {
				t.Errorf("offered %v, want one of %s or %s: %v", got, extract, check, c.want)
			}
		})
	}
}

// chained has the job load, which runs after report, and a slot of report that has succeeded.
func chained(t *testing.T) (s *site, load job.Slot, offers func() int) {
	s = newSite(t)
	s.after = []plans.Entry{{Time: time.Now().Add(-time.Hour), Definition: plans.Definition{Job: job.Job{Name: "load", After: []string{"report"}}}}}
	s.record(job.Record{Slot: slot(1), State: job.Succeeded, Node: "w1", Finished: time.Now()})
	load = slot(1)
	load.Job = "load"
	return s, load, func() int {
		s.Helper()
		s.purge()
		s.pass()
		defer func() { s.offered = nil }()
		return len(s.offered)
	}
}

// The stream may have folded the second message of the chained slot into the first one, which was purged.
func TestAMissingChainedSlotIsOfferedAgainEachTimeLaterUpToTheHorizon(t *testing.T) {
	s, _, offers := chained(t)
	for _, c := range []struct {
		at   time.Duration
		want int
	}{
		{time.Minute, 1}, {3 * time.Minute, 0}, {4 * time.Minute, 1}, {8 * time.Minute, 0}, {10 * time.Minute, 1}, {19 * time.Minute, 0},
		{21 * time.Minute, 1}, {20 * time.Hour, 1}, {23 * time.Hour, 1}, {25 * time.Hour, 0},
	} {
		s.shift = c.at
		if n := offers(); n != c.want {
			t.Errorf("%d offers %v after the slots before it have succeeded, want %d", n, c.at, c.want)
		}
	}
}

func TestAChainedSlotIsForgottenWhenItHasARecord(t *testing.T) {
	s, load, offers := chained(t)
	s.shift = time.Minute
	offers()
	s.record(job.Record{Slot: load, State: job.Failed})
	s.shift = time.Hour
	if n := offers(); n > 0 {
		t.Errorf("%d offers although it has a record", n)
	}
}

func TestAChainedSlotWhoseMessageIsPurgedLaterIsOfferedAgain(t *testing.T) {
	s, load, offers := chained(t)
	s.publish(core.Message{Slot: load, Chained: true})
	s.shift = time.Minute
	s.pass()
	if len(s.offered) > 0 {
		t.Fatalf("%v were offered although the message waits", s.offered)
	}
	if n := offers(); n != 1 {
		t.Errorf("%d offers after the message was purged, want 1", n)
	}
}

func TestASlotIsNotOfferedForTheChainedSlotAfterItWhileItHasAMessage(t *testing.T) {
	s, _, offers := chained(t)
	s.publish(core.Message{Slot: slot(1)})
	s.shift = time.Minute
	s.pass()
	if len(s.offered) > 0 {
		t.Errorf("%v were offered although a worker gets the message", s.offered)
	}
	if n := offers(); n != 1 {
		t.Errorf("%d offers after the message was purged, want 1", n)
	}
}

func TestAChainedSlotIsForgottenWhenItsJobRunsAfterNoOther(t *testing.T) {
	s, _, offers := chained(t)
	s.pass()
	s.shift = time.Minute
	after := s.after
	for _, s.after = range [][]plans.Entry{nil, after} {
		if n := offers(); n > 0 {
			t.Errorf("%d offers for a chained slot whose job was edited", n)
		}
	}
}
