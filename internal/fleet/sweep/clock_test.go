package sweep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/job"
)

// The retry time of a slot is from a clock that was two days ahead, and its message is lost. When the
// clock is right, the sweep does not wait for two days.
func TestASlotIsOfferedAtOnceIfTheClockWasSetBack(t *testing.T) {
	s := newSite(t)
	retry := job.Record{Slot: slot(1), State: job.Retrying, Attempt: 1, RetryAt: time.Now().Add(48 * time.Hour)}
	revision := s.record(retry)
	s.pass()
	s.want() // its retry is not due
	s.shift = -48 * time.Hour
	s.pass()
	s.want(fmt.Sprintf("%s/r%d {\"n\":1}", retry.Slot.ID(), revision+2))
}

func TestNoSweepIsMadeWhileTheClockIsImplausible(t *testing.T) {
	s := newSite(t)
	s.record(job.Record{Slot: slot(1), State: job.Retrying, Attempt: 1, RetryAt: time.Now().Add(-time.Minute)})
	s.implausible = true
	if err := s.sweeper.Turn(t.Context()); err == nil {
		t.Error("a pass was made")
	}
	s.want()
	s.implausible = false
	if err := s.sweeper.Turn(t.Context()); err != nil {
		t.Error(err)
	}
	if len(s.messages()) != 1 {
		t.Errorf("%q are offered when the clock is plausible again", s.messages())
	}
}
