package sweep_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// With 10,000 waiting runs of 10 kB, each pass read 98 MB.
func TestPassesReadTheMessagesOfTheJobsInQuestionAndManyBytesSeldom(t *testing.T) {
	s := newSite(t)
	const n, size = 1200, 10 << 10
	slots := make([]job.Slot, n)
	for i := range slots {
		slots[i] = job.NewSlot("bulk", hour.Add(-time.Duration(i)*time.Second))
		m := core.Message{Slot: slots[i], Due: slots[i].At}
		if _, err := s.Slots().Publish(t.Context(), "default", m, []byte(strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int64 {
		v, err := s.server.Varz(nil)
		if err != nil {
			t.Fatal(err)
		}
		return v.OutBytes
	}
	pass := func() int64 {
		before := count()
		s.pass()
		return count() - before
	}
	s.pass()
	lost := slot(1)
	s.sweeper.Published("default", core.Message{Slot: lost, Due: lost.At, JobRevision: 1})
	s.shift = time.Minute
	if bytes := pass(); bytes > 1<<20 || len(s.offered) != 1 || s.offered[0] != lost {
		t.Errorf("a pass about another job read %d bytes, and offered %v; want few, and the lost slot", bytes, s.offered)
	}
	s.offered = nil
	s.sweeper.Published("default", core.Message{Slot: slots[0], Due: slots[0].At, JobRevision: 1})
	if bytes := pass(); bytes < n*size {
		t.Errorf("a pass about a slot of the job read %d bytes, want all messages of it", bytes)
	}
	if bytes := pass(); bytes > 1<<20 {
		t.Errorf("the next pass read %d bytes, want that it lists the messages later", bytes)
	}
	s.shift += 2 * time.Minute
	if bytes := pass(); bytes < n*size || len(s.offered) != 0 {
		t.Errorf("a later pass read %d bytes, and offered %v; want all messages, and nothing offered", bytes, s.offered)
	}
}
