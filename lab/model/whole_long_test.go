//go:build long

package model

import (
	"testing"

	"github.com/cronce-io/cronce/job"
)

func TestWorkerThatTriesAgainBreaksNoInvariantHoweverLongItGoesOn(t *testing.T) {
	t.Parallel()
	if raceDetector {
		exploreWorkers(t, 2, 2, 7)
		return
	}
	exploreWorkers(t, 2, 2, forever).mustBeRich(t)
}

// mustBeRich fails the test if one of the difficult steps never happened.
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

func TestLockOfAQueueLetsNoTwoSlotsRunAtOnceHoweverLongItGoesOn(t *testing.T) {
	t.Parallel()
	exploreLock(t, job.OverlapQueue, 1, forever)
}

func TestLockUnderSkipLetsNoTwoSlotsRunAtOnceInLongerInterleavings(t *testing.T) {
	t.Parallel()
	exploreLock(t, job.OverlapSkip, 1, 24)
}
