package model

import (
	"fmt"
	"testing"

	"github.com/cronce-io/cronce/job"
)

// TestLockLetsNoTwoSlotsRunAtOnceInAnyInterleaving explores two slots of one job, its lock and two
// workers. TestLockOfAQueueLetsNoTwoSlotsRunAtOnceHoweverLongItGoesOn explores all states of the first
// world.
func TestLockLetsNoTwoSlotsRunAtOnceInAnyInterleaving(t *testing.T) {
	t.Parallel()
	for _, world := range []struct {
		policy          job.Overlap
		attempts, depth int
	}{
		{job.OverlapQueue, 1, 20},
		{job.OverlapQueue, 2, 18},
		{job.OverlapSkip, 1, 20},
		{job.OverlapLatest, 1, forever},
	} {
		t.Run(fmt.Sprintf("%s, %d attempts", world.policy, world.attempts), func(t *testing.T) {
			t.Parallel()
			exploreLock(t, world.policy, world.attempts, world.depth)
		})
	}
}

// exploreLock explores the lock of a policy. It fails the test if an invariant breaks, or if one of the
// difficult steps never happened.
func exploreLock(t *testing.T, policy job.Overlap, attempts, depth int) {
	t.Helper()
	if raceDetector {
		depth = 9
	}
	f := explore[queue](newLocking(policy, attempts), depth)
	t.Log(f)
	if f.violated != "" {
		t.Fatalf("%s:\n%s", f.violated, f.trace)
	}
	if depth == forever && !f.whole {
		t.Error("not every state was seen")
	}
	for _, label := range []string{"a late write lands", "a late lock lands", "crash", "a place is left"} {
		if f.labels[label] == 0 && !raceDetector {
			t.Errorf("never: %s", label)
		}
	}
}

// Each mutant breaks one rule of the lock, and shows what that rule is for.
func TestLocksMutantsAreEachFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lockMutation
		attempts int
		breaks   string
	}{
		"a dead owner frees its place":                     {lockMutation{deadFrees: true}, 2, withoutPlace},
		"a slot without a record holds no place":           {lockMutation{goneFrees: true}, 1, withoutPlace},
		"the lock is taken without a revision":             {lockMutation{writeAnywhere: true}, 1, withoutPlace},
		"the lock is left without a revision":              {lockMutation{leaveAnywhere: true}, 1, withoutPlace},
		"a place is taken before the answer":               {lockMutation{noAnswer: true}, 1, withoutPlace},
		"a slot that has ended and not left holds a place": {lockMutation{neverLearns: true}, 1, noWayOut},
		"a place is left before the outcome stands":        {lockMutation{leaveEarly: true}, 2, withoutPlace},
		"a claim before the place":                         {lockMutation{claimFirst: true}, 1, withoutPlace},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newLocking(job.OverlapQueue, test.attempts)
			m.lockMutation = test.lockMutation
			f := explore[queue](m, forever)
			t.Logf("%s: %v", f.violated, f)
			if f.violated != test.breaks {
				t.Errorf("found %q, want %q:\n%s", f.violated, test.breaks, f.trace)
			}
		})
	}
}
