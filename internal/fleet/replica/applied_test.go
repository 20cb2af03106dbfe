package replica

import (
	"testing"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

func TestAnotherContentIsReportedOnce(t *testing.T) {
	t.Parallel()
	mine, theirs := job.Job{Name: "report", Schedule: "0 7 * * *"}, job.Job{Name: "report", Schedule: "0 8 * * *"}
	third := job.Job{Name: "report", Schedule: "0 9 * * *"}
	var o own
	entry := func(j job.Job, revision uint64) plans.Entry {
		return plans.Entry{Definition: plans.Definition{Job: j}, Revision: revision}
	}
	if o.overruled(entry(theirs, 9)) || o.removed(plans.RegistryEvent{Name: "report", Revision: 9}) {
		t.Error("a job that this replica has not is reported")
	}
	o.put(mine, mine, 10)
	for _, step := range []struct {
		what string
		plans.Entry
		want bool
	}{
		{"what stood there before, told late", entry(theirs, 9), false},
		{"its own write", entry(mine, 10), false},
		{"its own content, paused", entry(mine, 11), false},
		{"another's", entry(theirs, 12), true},
		{"the same once more", entry(theirs, 12), false},
		{"that one paused", entry(theirs, 13), false},
		{"a third", entry(third, 14), true},
		{"its own again", entry(mine, 15), false},
		{"and the other's again", entry(theirs, 16), true},
	} {
		if got := o.overruled(step.Entry); got != step.want {
			t.Errorf("%s: reported %v, want %v", step.what, got, step.want)
		}
	}
	// What was told of when it was applied is not told again.
	o.put(mine, third, 20)
	if o.overruled(entry(third, 21)) || !o.overruled(entry(theirs, 22)) {
		t.Error("after another Apply the wrong one is reported")
	}
	if o.removed(plans.RegistryEvent{Name: "report", Revision: 19}) || !o.removed(plans.RegistryEvent{Name: "report", Revision: 23}) {
		t.Error("the wrong removal is reported")
	}
}
