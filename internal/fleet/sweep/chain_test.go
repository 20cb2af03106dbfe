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
func TestASlotIsOfferedAgainIfItsFollowerIsMissing(t *testing.T) {
	const offered, nothing = true, false
	extract := slot(1)
	check, load := extract, extract
	check.Job, load.Job = "check", "load"
	done := func(s job.Slot, state job.State) job.Record {
		return job.Record{Slot: s, State: state, Node: "w1", Finished: time.Now()}
	}
	for name, c := range map[string]struct {
		make func(*site)
		want bool
	}{
		"all have succeeded":       {func(s *site) {}, offered},
		"it has a record":          {func(s *site) { s.record(done(load, job.Failed)) }, nothing},
		"it runs":                  {func(s *site) { s.record(job.Record{Slot: load, State: job.Running, Node: "alive"}) }, nothing},
		"it waits":                 {func(s *site) { s.publish(core.Message{Slot: load, Chained: true}) }, nothing},
		"a shard of it waits":      {func(s *site) { s.publish(core.Message{Slot: load.WithShard(2, 3), Chained: true}) }, nothing},
		"another has failed":       {func(s *site) { s.record(done(check, job.Failed)) }, nothing},
		"another has not begun":    {func(s *site) { s.after[0].Job.After = append(s.after[0].Job.After, "more") }, nothing},
		"the job came later":       {func(s *site) { s.after[0].Time = time.Now().Add(time.Minute) }, nothing},
		"it was long ago":          {func(s *site) { s.shift = 25 * time.Hour }, nothing},
		"it was a moment ago":      {func(s *site) { s.shift = 10 * time.Second }, nothing},
		"nothing comes after that": {func(s *site) { s.after = nil }, nothing},
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
