package model

import (
	"fmt"
	"testing"
)

const (
	lease   = 3 // ticks; a shorter lease would end before a heartbeat can renew it
	forever = 1000
)

// TestWorkerBreaksNoInvariantInAnyInterleaving explores all states of two workers with one attempt, and
// larger worlds as deep as time allows. Of these,
// TestWorkerThatTriesAgainBreaksNoInvariantHoweverLongItGoesOn explores all states of the second one.
func TestWorkerBreaksNoInvariantInAnyInterleaving(t *testing.T) {
	t.Parallel()
	for _, world := range []struct{ workers, attempts, depth int }{
		{2, 1, forever},
		{2, 2, 16},
		{3, 2, 12},
	} {
		t.Run(fmt.Sprintf("%d workers, %d attempts", world.workers, world.attempts), func(t *testing.T) {
			t.Parallel()
			if raceDetector && (world.attempts > 1 || world.workers > 2) {
				world.depth = 7
			}
			exploreWorkers(t, world.workers, world.attempts, world.depth)
		})
	}
}

// exploreWorkers explores a world, and fails the test if the workers break an invariant.
func exploreWorkers(t *testing.T, workers, attempts, depth int) found {
	t.Helper()
	f := explore[state](&machine{workers: workers, lease: lease, rules: newRules(attempts)}, depth)
	t.Log(f)
	if f.violated != "" {
		t.Fatalf("%s:\n%s", f.violated, f.trace)
	}
	if depth == forever && !f.whole {
		t.Error("not every state was seen")
	}
	return f
}

// Each mutant breaks one rule of the worker, and shows what that rule is for.
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
