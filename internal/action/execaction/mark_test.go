//go:build linux || darwin

package execaction

import (
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// A worker whose guard was killed kills every process of the machine that has the mark.
func TestMarkIsInTheEnvironmentOfNoOtherCommand(t *testing.T) {
	t.Parallel()
	run := job.Run{
		Slot: job.NewSlot("report", time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)), Attempt: 2, Fence: 41,
		Node: "host-1-x-y", Queue: "default", Namespace: "cronce",
	}
	elsewhere, later := run, run
	elsewhere.Node, elsewhere.Namespace, later.Fence = "host-2-x-y", "staging", run.Fence+1
	prepare := func(run job.Run) guard.Command {
		c, err := command(t.Context(), spec.Exec{Args: []string{"true"}}, nil, run)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	hasMark := func(c guard.Command) bool {
		return !slices.ContainsFunc(prepare(run).Mark, func(entry string) bool { return !slices.Contains(c.Env, entry) })
	}
	if !hasMark(prepare(run)) {
		t.Error("the command lacks its own mark")
	}
	for name, other := range map[string]job.Run{"the same slot and fence in another namespace": elsewhere, "the next attempt": later} {
		if hasMark(prepare(other)) {
			t.Errorf("%s has the mark too", name)
		}
	}
}
