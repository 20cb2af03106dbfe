package producer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// resting returns the session of a producer that hears five older ones.
func resting(t *testing.T, b *broker) (s *session, turn func(time.Duration)) {
	t.Helper()
	v := &view{broker: b}
	p, err := New(Config{Node: "young", Registry: v, Watermark: v, Slots: v, Clock: v, Peers: v, Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	s = newSession(p, &keeper{Watermark: v, log: p.cfg.Logger})
	s.agenda.apply(plans.RegistryEvent{Ready: true}, time.Now())
	return s, func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); advance(time.Second) {
			for i := range maxActive {
				s.receive(exchange.Announcement{Kind: exchange.AnnounceHere, Node: fmt.Sprint("old", i), Started: p.cfg.Started.Add(-time.Hour)})
			}
			if _, err := s.turn(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !s.fleet.resting {
				t.Fatal("it takes part")
			}
		}
	}
}

// onAgenda counts the lines that have slots to come.
func (a *agenda) onAgenda() (n int) {
	for _, g := range a.groups {
		n += len(g.lines)
	}
	return n
}

// Thousands of jobs fall due and are removed while this producer rests. Slots that the
// others have published take no memory here.
func TestRestingProducerKeepsNothingOfRemovedJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		s, turn := resting(t, b)
		for i := range 1000 {
			e := b.apply(every(fmt.Sprint("job", i), "* * * * * *", job.CatchUpAll))
			s.agenda.apply(plans.RegistryEvent{Name: e.Job.Name, Revision: e.Revision, Entry: e, Time: e.Time}, time.Now())
		}
		turn(5 * time.Second)
		for i := range 1000 {
			s.agenda.apply(plans.RegistryEvent{Name: fmt.Sprint("job", i), Revision: uint64(1001 + i), Deleted: true, Time: time.Now()}, time.Now())
		}
		removed := time.Now()
		left := func(want int, why string) {
			t.Helper()
			if n := s.agenda.onAgenda(); n != want {
				t.Errorf("%d lines are left of 1000 removed jobs, want %d: %s", n, want, why)
			}
		}
		turn(time.Second)
		left(1000, "no watermark covers their slots")
		b.resetTo(exchange.Watermark{Time: removed.Add(-time.Second), Revision: 2000})
		turn(plans.LateAfter + 2*auditEvery)
		left(1000, "the watermark does not cover their last slot")
		b.resetTo(exchange.Watermark{Time: removed.Add(time.Second), Revision: 2000})
		turn(auditEvery + 2*time.Second)
		left(0, "the watermark covers all")
		if len(s.agenda.jobs) > 0 || len(s.agenda.heap) > 0 || len(s.agenda.schedules) > 0 {
			t.Errorf("left: %d jobs, %d groups, %d schedules", len(s.agenda.jobs), len(s.agenda.heap), len(s.agenda.schedules))
		}
	})
}
