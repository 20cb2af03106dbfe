package job_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/job"
)

// judgedZones have, among them, every kind of change that the world has seen
// since 2000: midnight gaps (Sao_Paulo, Havana), half hours (Lord_Howe), a
// skipped day (Apia), DST in Ramadan, backwards (Casablanca), winter time as the
// exception (Dublin), new standard times (Caracas, Pyongyang, Volgograd), none
// at all (Kolkata, Kathmandu).
var judgedZones = []string{
	"Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Casablanca",
	"Asia/Kolkata", "Pacific/Apia", "Europe/Dublin", "Asia/Kathmandu", "America/Havana", "America/Caracas",
	"Asia/Pyongyang", "Europe/Volgograd", "Antarctica/Troll", "America/St_Johns", "Pacific/Chatham", "Asia/Gaza",
}

var policies = []job.Plan{
	{DSTGap: job.GapAfter, DSTOverlap: job.RepeatFirst},
	{DSTGap: job.GapAfter, DSTOverlap: job.RepeatSecond},
	{DSTGap: job.GapAfter, DSTOverlap: job.RepeatBoth},
	{DSTGap: job.GapSkip, DSTOverlap: job.RepeatFirst},
	{DSTGap: job.GapSkip, DSTOverlap: job.RepeatSecond},
	{DSTGap: job.GapSkip, DSTOverlap: job.RepeatBoth},
}

const day = 86400

// transitions finds all changes of the clock by looking at it every hour.
func transitions(loc *time.Location, from, to int) []int64 {
	var found []int64
	offset := func(u int64) int { _, o := time.Unix(u, 0).In(loc).Zone(); return o }
	end := time.Date(to, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for u := time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC).Unix(); u < end; u += 3600 {
		if offset(u) == offset(u+3600) {
			continue
		}
		t := u
		for offset(t) == offset(u) {
			t++
		}
		found = append(found, t)
	}
	return found
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := job.LoadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func parse(t testing.TB, p job.Plan) *job.Schedule {
	t.Helper()
	s, err := job.ParseSchedule("report", p)
	if err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	return s
}

type failer interface {
	Helper()
	Fatalf(string, ...any)
}

// agree holds the schedule against the judge, under all policies, margin seconds
// inside of the window that the judge walked.
func agree(t failer, p job.Plan, loc *time.Location, w walk, margin int64) {
	t.Helper()
	from, to := w.instants[0]+margin, w.instants[len(w.instants)-1]-margin
	p.Timezone = loc.String()
	j := newJudge(w, p)
	for _, policy := range policies {
		p.DSTGap, p.DSTOverlap = policy.DSTGap, policy.DSTOverlap
		s, err := job.ParseSchedule("report", p)
		if err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		var want, got []int64
		for _, u := range j.slots(p.DSTGap, p.DSTOverlap) {
			if u > from && u <= to {
				want = append(want, u)
			}
		}
		for at := range s.Between(time.Unix(from, 0), time.Unix(to, 0)) {
			got = append(got, at.Unix())
		}
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("%+v\nafter %v: slot %d differs:\n got %v\nwant %v",
					p, time.Unix(from, 0).In(loc), i, show(loc, got, i), show(loc, want, i))
			}
		}
	}
}

func show(loc *time.Location, slots []int64, i int) string {
	if i >= len(slots) {
		return "none"
	}
	return fmt.Sprint(time.Unix(slots[i], 0).In(loc))
}

func TestEveryDSTTransitionFrom2000To2037AgreesWithASecondImplementation(t *testing.T) {
	t.Parallel()
	schedules := []string{
		"30 2 * * *", "0 0 * * *", "0,15,30,45 0-3 * * *", "*/10 * * * *", "5 */2 * * *", "59 23 29-31 * *",
		"0-59/7 0,1,2,3,23 * * SUN", "15 1 1 * 0",
	}
	for _, name := range judgedZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, name)
			changes := transitions(loc, 2000, 2038)
			if len(changes) == 0 {
				changes = []int64{1e9} // no transition: any day will do
			}
			for _, change := range changes {
				w := newWalk(loc, 60, change-3*day, change+3*day)
				for _, schedule := range schedules {
					agree(t, job.Plan{Schedule: schedule}, loc, w, day)
				}
			}
		})
	}
}

func TestSecondsAgreeWithASecondImplementationAroundTransitions(t *testing.T) {
	t.Parallel()
	for _, name := range judgedZones {
		loc := zone(t, name)
		for i, change := range transitions(loc, 2000, 2038) {
			if i%17 != 0 && name != "Pacific/Apia" {
				continue
			}
			w := newWalk(loc, 1, change-4*3600, change+4*3600)
			for _, schedule := range []string{"*/7 59,0 0-3 * * *", "30 */13 * * * *", "59 59 23,0,1,2 * * *"} {
				agree(t, job.Plan{Schedule: schedule}, loc, w, 2*3600)
			}
		}
	}
}
