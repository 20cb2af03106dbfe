package model

import (
	"fmt"
	"testing"

	"github.com/cronce-io/cronce/job"
)

// TestLockLetsNoTwoSlotsRunAtOnceInAnyInterleaving explores two slots of one job, its lock and line, and
// two workers. Without crashes, both slots get their outcomes, and the sweep is not needed.
func TestLockLetsNoTwoSlotsRunAtOnceInAnyInterleaving(t *testing.T) {
	t.Parallel()
	for _, world := range []struct {
		policy            job.Overlap
		attempts, depth   int
		crashes, operated bool
	}{
		{job.OverlapQueue, 1, 23, false, false},
		{job.OverlapQueue, 2, 20, false, false},
		{job.OverlapQueue, 1, 17, false, true},
		{job.OverlapLatest, 1, 22, false, false},
		{job.OverlapSkip, 1, 20, false, false},
		{job.OverlapQueue, 1, 14, true, false},
		{job.OverlapQueue, 1, 13, true, true},
		{job.OverlapLatest, 1, 14, true, false},
	} {
		t.Run(fmt.Sprintf("%s, %d attempts, crashes %v, operator %v", world.policy, world.attempts, world.crashes, world.operated), func(t *testing.T) {
			t.Parallel()
			m := newLocking(world.policy, world.attempts)
			if m.crashes = world.crashes; world.operated {
				m.cancels, m.reopens = 1, 1
			}
			exploreLock(t, m, world.depth)
		})
	}
}

// exploreLock explores a world with a lock. It fails the test if an invariant breaks, or if one of the
// difficult steps never happened.
func exploreLock(t *testing.T, m *locking, depth int) {
	t.Helper()
	if raceDetector {
		depth = 9
	}
	f := explore[queue](m, depth)
	t.Log(f)
	if f.violated != "" {
		t.Fatalf("%s:\n%s", f.violated, f.trace)
	}
	if depth == forever && !f.whole {
		t.Error("not every state was seen")
	}
	wanted := []string{"an entry is put", "looks at the lock again"}
	if m.crashes {
		wanted = []string{"crash", "a late lock lands", "a late write lands"}
	}
	for _, label := range wanted {
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
		crashes, operated bool
		breaks            string
	}{
		"the lock is written without a revision":            {lockMutation{writeAnywhere: true}, false, false, withoutPlace},
		"a place is taken before the answer":                {lockMutation{noAnswer: true}, false, false, withoutPlace},
		"a place is left before the outcome stands":         {lockMutation{leaveEarly: true}, false, false, ackedEarly},
		"a claim before the place":                          {lockMutation{claimFirst: true}, false, false, withoutPlace},
		"a dead owner frees its place":                      {lockMutation{deadFrees: true}, true, false, withoutPlace},
		"a reopened slot goes on in its old stay":           {lockMutation{oldStay: true}, false, true, withoutPlace},
		"an outcome is found before the lock":               {lockMutation{foundBefore: true}, false, true, withoutPlace},
		"a slot that was called while it stood is not seen": {lockMutation{forgetsHolder: true}, false, false, noWayOut},
		"a place that names another node is left over":      {lockMutation{ownOnly: true}, false, false, noWayOut},
		"no look at the lock after the entry":               {lockMutation{noLook: true}, false, false, noWayOut},
		"no look at the line that was emptied":              {lockMutation{noLookAgain: true}, false, false, noWayOut},
		"the entry before the record":                       {lockMutation{entryFirst: true}, false, false, ackedEarly},
		"a slot that ended unasked does not leave":          {lockMutation{leavesNothing: true}, false, true, noWayOut},
		"the sweep offers no holders":                       {lockMutation{sweepNoHolders: true}, true, false, noWayOut},
		"the sweep looks only where slots wait":             {lockMutation{sweepTrusts: true}, true, false, noWayOut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newLocking(job.OverlapQueue, 1)
			m.lockMutation, m.crashes = test.lockMutation, test.crashes
			if test.operated {
				m.cancels, m.reopens = 1, 1
			}
			f := explore[queue](m, forever)
			t.Logf("%s: %v", f.violated, f)
			if f.violated != test.breaks {
				t.Errorf("found %q, want %q:\n%s", f.violated, test.breaks, f.trace)
			}
		})
	}
}
