package plans_test

import (
	"testing"

	"github.com/cronce-io/cronce/internal/core/plans"
)

// While an operator's edit is in force, the definition that it replaced is refused. When the operator
// releases the job, that definition is accepted again. A definition that the file itself had replaced
// is still refused.
func TestReleasedJobTakesTheDefinitionOfItsFileAgain(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	older, newer, edit := report("0 6 * * *"), report("0 7 * * *"), report("0 8 * * *")
	r.apply(older, plans.OwnerFile, "old pod", false)
	r.apply(newer, plans.OwnerFile, "new pod", false)
	began := r.now
	r.apply(edit, plans.OwnerOperator, "alice", true)
	r.apply(report("0 9 * * *"), plans.OwnerOperator, "bob", true)
	if c := r.apply(newer, plans.OwnerFile, "new pod", false); c != plans.Held {
		t.Fatalf("a restart under the operator's edit: %v, want held", c)
	}
	next, ok := plans.ReleaseHold(*r.entry, "alice")
	if !ok || next.Job.Schedule != "0 9 * * *" || next.Owner != plans.OwnerReleased || next.Node != "alice" {
		t.Fatalf("released: %+v, %v", next, ok)
	}
	since := r.entry.Since()
	r.now = r.now.Add(1)
	r.store(next)
	if !r.entry.Since().Equal(since) {
		t.Errorf("to release moved the plan's beginning from %v to %v", since, r.entry.Since())
	}
	if c := r.apply(older, plans.OwnerFile, "old pod", false); c != plans.Superseded {
		t.Errorf("what the file had replaced before: %v, want superseded", c)
	}
	if c := r.apply(newer, plans.OwnerFile, "new pod", false); c != plans.Changed {
		t.Errorf("the file's content: %v, want changed", c)
	}
	if c := r.apply(report("0 9 * * *"), plans.OwnerCode, "another", false); c != plans.Superseded {
		t.Errorf("the operator's after that: %v, want superseded", c)
	}
	if past := r.entry.Past; len(past) != 4 || !past[1].From.Equal(began) {
		t.Errorf("the past is %+v, want four plans", past)
	}
	if _, ok := plans.ReleaseHold(*r.entry, "alice"); ok {
		t.Error("a job that no operator holds is released")
	}
}
