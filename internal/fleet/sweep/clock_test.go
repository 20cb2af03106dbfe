package sweep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/job"
)

// A slot was to be retried by a clock that was two days ahead, and its message is lost. It
// is offered as soon as the clock is right, not when that has come there again.
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

// While the clock is not believed a sweep that finds everything by its age finds nothing.
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
