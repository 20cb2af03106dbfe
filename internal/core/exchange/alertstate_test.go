package exchange

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/job"
)

func TestAJobRecoversOnceAfterEachFailure(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	var s AlertState
	for i, c := range []struct {
		outcome            job.State
		revision           uint64
		changed, recovered bool
	}{
		{job.Succeeded, 3, false, false},
		{job.Failed, 5, true, false},
		{job.Failed, 5, false, false},    // found again after a crash
		{job.Succeeded, 4, false, false}, // ended before the failure
		{job.Skipped, 6, false, false},
		{job.Expired, 7, true, false},
		{job.Succeeded, 9, true, true},
		{job.Succeeded, 10, false, false},
		{job.Failed, 8, false, false}, // ended before the success
		{job.Missed, 11, true, false},
		{job.Succeeded, 12, true, true},
	} {
		r := job.Record{Slot: job.NewSlot("report", at), State: c.outcome, Finished: at}
		next, changed, recovered := s.Next(r, c.revision)
		if changed != c.changed || recovered != c.recovered {
			t.Errorf("step %d, %s at %d: changed %v, recovered %v, want %v, %v", i, c.outcome, c.revision, changed, recovered, c.changed, c.recovered)
		}
		s = next
	}
}

// The ledger was created again, or restored from an older copy; or the broker's clock was set back.
func TestAnOutcomeChangesTheStateOfItsJobIfItsRevisionIsLargerOrItsEndLater(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	var s AlertState
	for i, c := range []struct {
		outcome            job.State
		revision           uint64
		finished           time.Duration
		changed, recovered bool
	}{
		{job.Failed, 500, 0, true, false},
		{job.Succeeded, 510, time.Hour, true, true},
		{job.Failed, 3, 2 * time.Hour, true, false}, // in a new ledger
		{job.Failed, 3, 2 * time.Hour, false, false},
		{job.Succeeded, 2, 90 * time.Minute, false, false},
		{job.Succeeded, 5, 3 * time.Hour, true, true},
		{job.Failed, 8, -time.Hour, true, false}, // by a clock that was set back
		{job.Failed, 8, -time.Hour, false, false},
		{job.Succeeded, 9, 0, true, true},
	} {
		r := job.Record{Slot: job.NewSlot("report", at), State: c.outcome, Finished: at.Add(c.finished)}
		next, changed, recovered := s.Next(r, c.revision)
		if changed != c.changed || recovered != c.recovered {
			t.Errorf("step %d, %s at %d: changed %v, recovered %v, want %v, %v", i, c.outcome, c.revision, changed, recovered, c.changed, c.recovered)
		}
		s = next
	}
}

// Workers see outcomes late, in any order, and several times.
func TestAJobsStateIsThatOfItsLastOutcomeInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		outcomes := rapid.SliceOfN(rapid.SampledFrom([]job.State{job.Failed, job.Succeeded, job.Missed, job.Expired}), 1, 8).Draw(t, "outcomes")
		var order []int
		for i := range outcomes {
			order = append(order, i, i)
		}
		order = rapid.Permutation(order).Draw(t, "order")
		var s AlertState
		var newestFailure, newestSuccess uint64
		for _, i := range order {
			r := job.Record{Slot: job.NewSlot("report", time.Unix(int64(i), 0)), State: outcomes[i], Finished: time.Unix(int64(i), 0)}
			next, _, recovered := s.Next(r, uint64(i+1))
			if recovered && (!s.Failed || outcomes[i] != job.Succeeded || uint64(i+1) <= s.Revision) {
				t.Fatalf("%+v recovers with %s at %d", s, outcomes[i], i+1)
			}
			s = next
		}
		for i, outcome := range outcomes {
			if outcome == job.Succeeded {
				newestSuccess = uint64(i + 1)
			} else {
				newestFailure = uint64(i + 1)
			}
		}
		if newestFailure > newestSuccess && !s.Failed {
			t.Fatalf("it failed last, at %d, and the state is %+v", newestFailure, s)
		}
	})
}

func TestAlertStateIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	s := AlertState{Job: "report", Failed: true, ID: "report:@a", Revision: 7, Time: time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC), Nonce: "n"}
	data, err := s.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeAlertState(data)
	if err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("%s is read as %+v, %v", data, back, err)
	}
	for _, bad := range []string{``, `{}`, `{"v":2,"job":"report"}`, `{"v":1,"job":"a b"}`, `{"v":1}`} {
		if s, err := DecodeAlertState([]byte(bad)); err == nil {
			t.Errorf("%s is read as %+v", bad, s)
		}
	}
}
