package control_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/job"
)

func after(name string, before ...string) job.Job { return job.Job{Name: name, After: before} }

// A circle may be closed by a job that somebody else has brought.
func TestApplyClosesNoCircle(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.define(t, after("b", "a"), "file", "web1")
	p.define(t, after("c", "b"), "file", "web1")
	stored := p.stored(t)
	_, err := p.Apply(t.Context(), []job.Job{named("d", "@daily"), after("a", "d", "c")}, control.ApplyOptions{})
	if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), "a after c after b after a") {
		t.Errorf("got %v", err)
	}
	if got := p.stored(t); got != stored {
		t.Errorf("stored %s, want %s: nothing is written", got, stored)
	}
	// The edit that opens it is the other job's.
	p.apply(t, control.ApplyOptions{}, after("a", "d", "c"), after("b", "d"), named("d", "@daily"))
}

func TestApplyNamesJobsThatAreNotThere(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.define(t, named("there", "@daily"), "file", "web1")
	report := p.apply(t, control.ApplyOptions{}, named("given", "@daily"), after("load", "there", "given", "nowhere"))
	if got := report[1].Missing; !slices.Equal(got, []string{"nowhere"}) || len(report[0].Missing) > 0 {
		t.Errorf("missing %v and %v, want nowhere", got, report[0].Missing)
	}
}
