package sweep_test

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// A node has reported the recovery, and died before it stored that the trouble has ended. The stream has
// forgotten the message ID of that alert when another node finds the trouble.
func TestARecoveryOfLongAgoIsReportedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		reported bool
		sent     int64
	}{"it was reported": {true, 0}, "it was not reported": {false, 1}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.lateAfter(time.Minute)
			late := s.due(10 * time.Minute)
			s.sweeper.Published("default", late)
			started := late.Due.Add(2 * time.Minute)
			rec := job.Record{
				Slot: late.Slot, State: job.Succeeded, Node: "w", Attempt: 1, Finished: started.Add(time.Second),
				Attempts: []job.Attempt{{Number: 1, Started: started}},
			}
			at := s.record(rec)
			state := exchange.AlertState{Job: "report", Failed: true, ID: late.Slot.ID(), Time: started, Nonce: "n"}
			if _, err := s.AlertStates().Write(t.Context(), state, 0); err != nil {
				t.Fatal(err)
			}
			e := exchange.NewAlert(rec, at, job.AlertLate)
			e.Time = started
			if err := s.Alert(t.Context(), e, late.Slot.ID()+"/alert/late"); err != nil {
				t.Fatal(err)
			}
			if c.reported {
				e := exchange.NewAlert(rec, at, job.AlertRecovered)
				if err := s.Alert(t.Context(), e, state.RecoveredID()); err != nil {
					t.Fatal(err)
				}
			}
			s.pass()
			if state, _, err := s.AlertStates().Read(t.Context(), "report"); err != nil || state.Failed || s.alerts.Load() != c.sent {
				t.Errorf("the state is %+v, %v, and %d alerts were sent, want %d", state, err, s.alerts.Load(), c.sent)
			}
		})
	}
}
