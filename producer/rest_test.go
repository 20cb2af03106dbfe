package producer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/job"
)

// resting is the shift of a producer that hears five older ones.
func resting(t *testing.T, b *broker) (s *shift, turn func(time.Duration)) {
	t.Helper()
	v := &view{broker: b}
	p, err := New(Config{Node: "young", Registry: v, Watermark: v, Slots: v, Clock: v, Peers: v, Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	s = newShift(p, &keeper{Watermark: v, log: p.cfg.Logger})
	s.board.apply(job.RegistryEvent{Ready: true}, time.Now())
	return s, func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); advance(time.Second) {
			for i := range handful {
				s.hear(job.Announcement{Kind: job.AnnounceHere, Node: fmt.Sprint("old", i), Started: p.cfg.Started.Add(-time.Hour)})
			}
			if _, err := s.turn(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !s.fleet.rests {
				t.Fatal("it takes part")
			}
		}
	}
}

// lines are those that are on the board.
func (b *board) onBoard() (n int) {
	for _, g := range b.groups {
		n += len(g.lines)
	}
	return n
}

// Jobs fall due and are removed, by the thousand, while this producer rests. What the
// others have published of them takes no memory here.
func TestRestingProducerKeepsNothingOfRemovedJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		s, turn := resting(t, b)
		for i := range 1000 {
			e := b.apply(every(fmt.Sprint("job", i), "* * * * * *", job.CatchUpAll))
			s.board.apply(job.RegistryEvent{Name: e.Job.Name, Revision: e.Revision, Entry: e, Time: e.Time}, time.Now())
		}
		turn(5 * time.Second)
		for i := range 1000 {
			s.board.apply(job.RegistryEvent{Name: fmt.Sprint("job", i), Revision: uint64(1001 + i), Deleted: true, Time: time.Now()}, time.Now())
		}
		published := time.Now()
		turn(2 * time.Second)
		if n := s.board.onBoard(); n != 1000 {
			t.Errorf("%d lines are left of 1000 jobs whose slots nobody is known to have published", n)
		}
		b.resetTo(job.Watermark{Time: published.Add(-time.Second), Revision: 2000})
		turn(tidyEvery + 2*time.Second)
		if n := s.board.onBoard(); n != 1000 {
			t.Errorf("%d lines are left of 1000 jobs, with a slot that the watermark does not cover", n)
		}
		b.resetTo(job.Watermark{Time: published.Add(time.Second), Revision: 2000})
		turn(tidyEvery + 2*time.Second)
		if n := s.board.onBoard(); n > 0 || len(s.board.tasks) > 0 || len(s.board.heap) > 0 || len(s.board.schedules) > 0 {
			t.Errorf("%d lines in %d groups, %d tasks and %d schedules are left of removed jobs", n, len(s.board.heap), len(s.board.tasks), len(s.board.schedules))
		}
		if s.board.leftover != 0 {
			t.Error("it reads the watermark each minute, for nothing")
		}
	})
}
