package sweep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/job"
)

// The retry time of a slot is from a clock that was two days ahead, and its message is lost.
// It is offered as soon as the clock is right, not two days later.
func TestASlotOfAClockThatWasSetBackIsOfferedWithoutWaitingForIt(t *testing.T) {
	s := newSite(t)
	retry := job.Record{Slot: slot(1), State: job.Retrying, Attempt: 1, RetryAt: time.Now().Add(48 * time.Hour)}
	revision := s.record(retry)
	s.pass()
	s.want() // its time is to come
	s.shift = -48 * time.Hour
	s.pass()
	s.want(fmt.Sprintf("%s/r%d {\"n\":1}", retry.Slot.ID(), revision+2))
}

// A sweep judges by age. While the clock is not believed, none is made.
func TestNoSweepIsMadeWhileTheClockIsImplausible(t *testing.T) {
	s := newSite(t)
	s.record(job.Record{Slot: slot(1), State: job.Retrying, Attempt: 1, RetryAt: time.Now().Add(-time.Minute)})
	s.doubt = true
	if err := s.sweeper.Turn(t.Context()); err == nil {
		t.Error("a pass was made")
	}
	s.want()
	s.doubt = false
	if err := s.sweeper.Turn(t.Context()); err != nil {
		t.Error(err)
	}
	if len(s.messages()) != 1 {
		t.Errorf("%q are offered when the clock is believed again", s.messages())
	}
}
