package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// countedAlerts counts the alerts that are sent, including those that the stream folds.
type countedAlerts struct {
	*kv.Store
	site *site
}

func (c countedAlerts) Alert(ctx context.Context, e job.Event, id string) error {
	c.site.alerts.Add(1)
	if c.site.alerting != nil {
		c.site.alerting(e)
	}
	return c.Store.Alert(ctx, e, id)
}

func (c countedAlerts) Events(ctx context.Context, f kv.EventFilter) iter.Seq2[job.Event, error] {
	return func(yield func(job.Event, error) bool) {
		if c.site.listing != nil {
			if err := c.site.listing(); err != nil {
				yield(job.Event{}, err)
				return
			}
		}
		c.Store.Events(ctx, f)(yield)
	}
}

// lateAfter makes the job report ask for alerts about late slots.
func (s *site) lateAfter(after time.Duration) {
	a := &job.Alert{NATS: &job.AlertNATS{Subject: "alerts.late"}}
	s.late = []plans.Entry{{Definition: plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", OnLate: a, OnRecovered: a, LateAfter: after}}}}
}

// lates returns the slots with a stored alert about being late.
func (s *site) lates() (slots []string) {
	s.Helper()
	for e, err := range s.Events(s.Context(), kv.EventFilter{}) {
		if err != nil {
			s.Fatal(err)
		}
		if e.Alert == job.AlertLate {
			if e.Kind != job.EventAlert || e.Node == "" || e.Job != "report" || !strings.Contains(e.Error, "not started within") {
				s.Errorf("alert %+v", e)
			}
			slots = append(slots, e.ID)
		}
	}
	slices.Sort(slots)
	return slots
}

// due returns the message of a slot of report that was due ago before the test's clock.
func (s *site) due(ago time.Duration) core.Message {
	at := time.Now().Add(s.shift - ago).Truncate(time.Second).UTC()
	return core.Message{Slot: job.NewSlot("report", at), Due: at, JobRevision: 1, Node: "n5"}
}

func TestALateSlotHasOneAlert(t *testing.T) {
	s := newSite(t)
	s.lateAfter(time.Minute)
	late, early := s.due(2*time.Minute), s.due(30*time.Second)
	for _, m := range []core.Message{late, early} {
		s.publish(m)
		s.sweeper.Published("default", m)
	}
	missed := s.due(3 * time.Minute)
	missed.Missed = 1
	s.sweeper.Published("default", missed)
	for range 3 {
		s.pass()
	}
	if got := s.lates(); !slices.Equal(got, []string{late.Slot.ID()}) || s.alerts.Load() != 1 {
		t.Errorf("alerts about %q, sent %d times, want one about %s", got, s.alerts.Load(), late.Slot)
	}
	state, _, err := s.AlertStates().Read(t.Context(), "report")
	if err != nil || !state.Failed || state.ID != late.Slot.ID() {
		t.Errorf("the state is %+v, %v: the job is in trouble until it succeeds", state, err)
	}
	if next, _, recovered := state.Next(job.Record{Slot: late.Slot, State: job.Succeeded}, 1); !recovered || next.Failed {
		t.Errorf("a success gives %+v, %v", next, recovered)
	}
	s.shift += time.Minute
	s.pass()
	if got := s.lates(); len(got) != 2 {
		t.Errorf("a minute later alerts about %q, want both", got)
	}
}

// The node that published the slots and an alert has died. Another one sweeps, and the stream has
// forgotten the ID of the alert.
func TestANewSweeperAlertsOnlyAboutLateSlotsWithoutAnAlert(t *testing.T) {
	s := newSite(t)
	s.lateAfter(time.Minute)
	alerted, unalerted := s.due(10*time.Minute), s.due(9*time.Minute)
	s.publish(alerted)
	s.sweeper.Published("default", alerted)
	s.pass()
	s.publish(unalerted) // then the node dies
	s.sweeper = s.at("n6")
	s.pass()
	want := []string{alerted.Slot.ID(), unalerted.Slot.ID()}
	if got := s.lates(); !slices.Equal(got, want) || s.alerts.Load() != 2 {
		t.Errorf("alerts about %q, sent %d times; want %q, each once", got, s.alerts.Load(), want)
	}
}

// A pass takes minutes, so another node begins one, which alerts about all slots. The stream would not
// fold those alerts any more that the slow pass has yet to send.
func TestASlowPassSendsNoAlertThatAnotherNodeHasSent(t *testing.T) {
	s := newSite(t)
	s.lateAfter(time.Minute)
	first := s.due(10 * time.Minute)
	for i := range sweep.AtOnce + 8 {
		m := first
		m.Due = first.Due.Add(-time.Duration(i) * time.Second)
		m.Slot = job.NewSlot("report", m.Due)
		s.publish(m)
		s.sweeper.Published("default", m)
	}
	var mu sync.Mutex
	sending, passed := 0, make(chan struct{})
	s.alerting = func(e job.Event) {
		if e.Node != "n5" {
			return
		}
		mu.Lock()
		sending++
		n := sending
		mu.Unlock()
		switch {
		case n > sweep.AtOnce:
			t.Errorf("sent again: the alert about %s", e.ID)
		case n == sweep.AtOnce:
			s.shift += 3 * time.Minute
			if err := s.at("n6").Pass(t.Context(), []exchange.NodeEvent{{Name: "alive"}}); err != nil {
				t.Error(err)
			}
			close(passed)
		}
		<-passed
	}
	s.pass()
	if got := s.lates(); len(got) != sweep.AtOnce+8 {
		t.Errorf("%d alerts are stored, want %d", len(got), sweep.AtOnce+8)
	}
}

// The node that has sent an alert may die before it notes that the job is in trouble. Without the
// note the job would recover without an alert.
func TestANewSweeperNotesTheTroubleOfAnAlertUnlessItHasEnded(t *testing.T) {
	for name, ended := range map[string]bool{"it has not ended": false, "it has ended": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.lateAfter(time.Minute)
			late := s.due(10 * time.Minute)
			s.publish(late)
			sent := late.Due.Add(time.Minute)
			e := job.Event{V: 1, Kind: job.EventAlert, Alert: job.AlertLate, Time: sent, Node: "n5", ID: late.Slot.ID(), Job: "report", Error: "not started within 1m0s"}
			if err := s.Alert(t.Context(), e, late.Slot.ID()+"/alert/late"); err != nil {
				t.Fatal(err)
			}
			if ended {
				state := exchange.AlertState{Job: "report", ID: late.Slot.ID(), Revision: 7, Time: sent.Add(time.Minute), Nonce: "n"}
				if _, err := s.AlertStates().Write(t.Context(), state, 0); err != nil {
					t.Fatal(err)
				}
			}
			s.pass()
			if state, _, err := s.AlertStates().Read(t.Context(), "report"); err != nil || state.Failed == ended || s.alerts.Load() != 0 {
				t.Errorf("the state is %+v, %v, and %d alerts were sent", state, err, s.alerts.Load())
			}
		})
	}
}

// recoveries returns the slots with a stored alert that their job has recovered with them.
func (s *site) recoveries() (slots []string) {
	s.Helper()
	for e, err := range s.Events(s.Context(), kv.EventFilter{}) {
		if err != nil {
			s.Fatal(err)
		}
		if e.Alert == job.AlertRecovered {
			slots = append(slots, e.ID+" since "+e.Since)
		}
	}
	return slots
}

// The worker of the slot saw no trouble yet when it wrote the outcome, so nothing else ends the trouble
// before the next slot succeeds.
func TestTheTroubleOfALateSlotEndsIfTheSlotHasSucceededMeanwhile(t *testing.T) {
	done := func(m core.Message) job.Record {
		now := time.Now().UTC()
		return job.Record{Slot: m.Slot, State: job.Succeeded, Node: "w", Attempt: 1, Attempts: []job.Attempt{{Number: 1, Started: now}}, Finished: now}
	}
	for name, c := range map[string]struct {
		before func(s *site, late core.Message) // before the pass
		while  func(s *site, late core.Message) // while the alert is sent
		ends   bool
	}{
		"while the alert is sent": {while: func(s *site, late core.Message) { s.record(done(late)) }, ends: true},
		"before the alert":        {before: func(s *site, late core.Message) { s.record(done(late)) }, ends: true},
		"as a shadow": {while: func(s *site, late core.Message) {
			r := done(late)
			r.Shadow = 1
			s.record(r)
		}},
		"it has failed": {while: func(s *site, late core.Message) {
			r := done(late)
			r.State = job.Failed
			s.record(r)
		}},
		"before another slot that changed the state": {before: func(s *site, late core.Message) {
			state := exchange.AlertState{Job: "report", ID: slot(7).ID(), Revision: s.record(done(late)) + 5, Time: time.Now(), Nonce: "n"}
			if _, err := s.AlertStates().Write(s.Context(), state, 0); err != nil {
				s.Fatal(err)
			}
		}, ends: true},
		"the node that noted the trouble has died": {before: func(s *site, late core.Message) {
			s.record(done(late))
			state := exchange.AlertState{Job: "report", Failed: true, ID: late.Slot.ID(), Time: time.Now(), Nonce: "n"}
			if _, err := s.AlertStates().Write(s.Context(), state, 0); err != nil {
				s.Fatal(err)
			}
		}, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.lateAfter(time.Minute)
			late := s.due(90 * time.Second)
			s.publish(late)
			s.sweeper.Published("default", late)
			if c.before != nil {
				c.before(s, late)
			}
			s.alerting = func(e job.Event) {
				if e.Alert == job.AlertLate && c.while != nil {
					c.while(s, late)
				}
			}
			s.pass()
			state, _, err := s.AlertStates().Read(t.Context(), "report")
			if err != nil || state.Failed == c.ends {
				t.Errorf("the state is %+v, %v, want trouble: %v", state, err, !c.ends)
			}
			want := []string{late.Slot.ID() + " since " + late.Slot.ID()}
			if !c.ends {
				want = nil
			}
			if got := s.recoveries(); !slices.Equal(got, want) || len(s.lates()) != 1 {
				t.Errorf("late %q, recovered %q, want %q", s.lates(), got, want)
			}
		})
	}
}

// A job that was in no trouble would send an alert that it has recovered.
func TestALateSlotIsNoTroubleWhileTheAlertsCannotBeRead(t *testing.T) {
	s := newSite(t)
	s.lateAfter(time.Minute)
	late := s.due(10 * time.Minute)
	s.publish(late)
	s.sweeper.Published("default", late)
	unread := errors.New("not answered")
	s.listing = func() error { return unread }
	if err := s.sweeper.Pass(t.Context(), []exchange.NodeEvent{{Name: "alive"}}); !errors.Is(err, unread) {
		t.Errorf("the pass: %v", err)
	}
	if state, _, err := s.AlertStates().Read(t.Context(), "report"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("the state is %+v, %v, and no alert was sent", state, err)
	}
}

func TestOnlySlotsThatStartedLateAreLate(t *testing.T) {
	for name, c := range map[string]struct {
		record func(due time.Time) job.Record
		late   bool
	}{
		"started in time": {func(due time.Time) job.Record {
			return job.Record{State: job.Running, Node: "alive", Attempt: 1, Attempts: []job.Attempt{{Number: 1, Node: "alive", Started: due.Add(30 * time.Second)}}}
		}, false},
		"started in time, and again": {func(due time.Time) job.Record {
			return job.Record{State: job.Running, Node: "alive", Attempt: 2, Attempts: []job.Attempt{{Number: 1, Started: due.Add(time.Second)}, {Number: 2, Node: "alive", Started: due.Add(5 * time.Minute)}}}
		}, false},
		"started late": {func(due time.Time) job.Record {
			return job.Record{State: job.Running, Node: "alive", Attempt: 1, Attempts: []job.Attempt{{Number: 1, Node: "alive", Started: due.Add(61 * time.Second)}}}
		}, true},
		"started late, and done": {func(due time.Time) job.Record {
			return job.Record{State: job.Succeeded, Attempt: 1, Attempts: []job.Attempt{{Number: 1, Started: due.Add(61 * time.Second), Finished: due.Add(62 * time.Second)}}}
		}, true},
		"claimed and released": {func(due time.Time) job.Record {
			return job.Record{State: job.Retrying, RetryAt: due.Add(time.Hour)}
		}, true},
		"skipped": {func(time.Time) job.Record { return job.Record{State: job.Skipped} }, false},
		"expired": {func(time.Time) job.Record { return job.Record{State: job.Expired} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.lateAfter(time.Minute)
			m := s.due(10 * time.Minute)
			s.publish(m)
			s.sweeper.Published("default", m)
			r := c.record(m.Due)
			r.Slot = m.Slot
			s.record(r)
			for range 2 {
				s.pass()
			}
			if got := s.lates(); (len(got) == 1) != c.late || len(got) > 1 {
				t.Errorf("alerts about %q, want late: %v", got, c.late)
			}
		})
	}
}

// A slot that ended as a whole has no records of its shards.
func TestShardsOfASlotThatEndedAsAWholeAreNotLate(t *testing.T) {
	s := newSite(t)
	s.lateAfter(time.Minute)
	ended, late := s.due(10*time.Minute), s.due(9*time.Minute)
	s.record(job.Record{Slot: ended.Slot, State: job.Skipped})
	for _, m := range []core.Message{ended, late} {
		m.Slot = m.Slot.WithShard(2, 3)
		s.publish(m)
		s.sweeper.Published("default", m)
	}
	s.pass()
	if got := s.lates(); !slices.Equal(got, []string{late.Slot.ID()}) {
		t.Errorf("alerts about %q, want one about %s", got, late.Slot)
	}
}

// The changes of the ledger, which a pass reads anyway, say that the slots started in time.
func TestSlotsInTimeCostNoReads(t *testing.T) {
	s := newSite(t)
	s.lateAfter(time.Minute)
	s.pass()
	for n := range 20 {
		m := s.due(time.Duration(n) * time.Second)
		s.sweeper.Published("default", m)
		s.record(job.Record{Slot: m.Slot, State: job.Succeeded, Attempt: 1, Attempts: []job.Attempt{{Number: 1, Node: fmt.Sprint(n), Started: m.Due}}})
	}
	s.pass()
	s.shift += 2 * time.Minute
	before := s.reads.Load()
	s.pass()
	if n := s.reads.Load() - before; n > 0 || len(s.lates()) > 0 {
		t.Errorf("%d records are read, and alerts about %q", n, s.lates())
	}
}

func TestPublishedDoesNotWaitWhileTheEventsAreRead(t *testing.T) {
	s := newSite(t)
	s.lateAfter(time.Minute)
	late := s.due(10 * time.Minute)
	s.publish(late)
	s.sweeper.Published("default", late)
	read := false
	s.listing = func() error {
		read = true
		noted := make(chan struct{})
		go func() {
			s.sweeper.Published("default", s.due(0))
			close(noted)
		}()
		select {
		case <-noted:
		case <-time.After(4 * time.Minute):
			t.Error("Published waits for the events")
		}
		return nil
	}
	s.pass()
	if !read {
		t.Error("the events were not read")
	}
}
