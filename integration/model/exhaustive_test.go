package model

import (
	"fmt"
	"testing"
)

const (
	lease   = 3 // ticks; a shorter one ends before a heartbeat can prolong it
	forever = 1000
)

// TestWorkerBreaksNoInvariantInAnyInterleaving explores two workers wholly, and three as
// deep as time allows.
func TestWorkerBreaksNoInvariantInAnyInterleaving(t *testing.T) {
	t.Parallel()
	for _, world := range []struct{ workers, attempts, depth int }{
		{2, 1, forever},
		{2, 2, forever},
		{3, 2, 12},
	} {
		if raceDetector && (world.attempts > 1 || world.workers > 2) {
			world.depth = 7
		}
		t.Run(fmt.Sprintf("%d workers, %d attempts", world.workers, world.attempts), func(t *testing.T) {
			t.Parallel()
			f := explore[state](&machine{workers: world.workers, lease: lease, rules: newRules(world.attempts)}, world.depth)
			t.Log(f)
			if f.violated != "" {
				t.Fatalf("%s:\n%s", f.violated, f.trace)
			}
			if world.depth == forever && !f.whole {
				t.Error("not every state was seen")
			}
			if world.depth == forever && world.attempts > 1 {
				f.mustBeRich(t)
			}
		})
	}
}

// mustBeRich fails when what makes the world hard never happened in it.
func (f found) mustBeRich(t *testing.T) {
	t.Helper()
	for _, label := range []string{
		"the owner is fenced", "a late write lands", "a won claim is found replaced", "a claim is not answered",
		"a claim is won, but the worker stops", "the handler is stopped", "tick, while some are frozen", "thaw", "crash",
		"the lapse is noticed", "the last word lands",
	} {
		if f.labels[label] == 0 {
			t.Errorf("never: %s", label)
		}
	}
}

// TestWorkersMutantsAreEachFound: what the rules are for, one by one.
func TestWorkersMutantsAreEachFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mutation
		attempts int
		breaks   string
	}{
		"completion without a revision":             {mutation{completeAnywhere: true}, 1, finalChanged},
		"takeover without a fence":                  {mutation{takeOverUnfenced: true}, 1, actsBeside},
		"fence at a revision not seen to stand":     {mutation{fenceUnseen: true}, 1, actsBeside},
		"no node is ever fenced":                    {mutation{neverFence: true}, 1, noWayOut},
		"ack before the record":                     {mutation{ackFirst: true}, 1, ackedEarly},
		"ack by a worker that lost its claim":       {mutation{ackRefused: true}, 2, ackedEarly},
		"start after a mere read":                   {mutation{startOnRead: true}, 1, unclaimedStart},
		"start on an unanswered claim":              {mutation{startOnUnknown: true}, 1, unclaimedStart},
		"start without a look at the lease":         {mutation{startUntrusted: true}, 1, untrustedStart},
		"trust from the answer":                     {mutation{trustFromAnswer: true}, 1, actsBeside},
		"trust for the whole lease":                 {mutation{noMargin: true}, 1, actsBeside},
		"the old name goes on after its lease":      {mutation{keepName: true}, 1, startedTwice},
		"a started attempt is given back uncounted": {mutation{releaseStarted: true}, 1, startedTwice},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := explore[state](&machine{workers: 2, lease: lease, rules: newRules(test.attempts), mutation: test.mutation}, forever)
			t.Logf("%s: %v", f.violated, f)
			if f.violated != test.breaks {
				t.Errorf("found %q, want %q:\n%s", f.violated, test.breaks, f.trace)
			}
		})
	}
}
