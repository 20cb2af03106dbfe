package job_test

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/job"
)

// judgedZones cover every kind of clock change since 2000: gaps at midnight (Sao_Paulo, Havana),
// half hours (Lord_Howe), a skipped day (Apia), clocks that go back in Ramadan (Casablanca), winter
// time as negative DST (Dublin), new standard times (Caracas, Pyongyang, Volgograd), and no change
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

const (
	day = 86400
	// margin is how far the judge's walk extends beyond a compared window, to detect repeated
	// wall times at its ends. No clock has been set back by more since 2000.
	margin = 2 * 3600
)

// transitions returns all changes of the offset of each judged zone from 2000 to 2037. It samples the
// offset every six hours.
var transitions = sync.OnceValues(func() (map[string][]int64, error) {
	const stride = 6 * 3600
	found := map[string][]int64{}
	end := time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, name := range judgedZones {
		loc, err := tzdata.Load(name)
		if err != nil {
			return nil, err
		}
		offset := func(u int64) int { _, o := time.Unix(u, 0).In(loc).Zone(); return o }
		u := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
		for before := offset(u); u < end; u += stride {
			if after := offset(u + stride); after != before {
				within := sort.Search(stride, func(i int) bool { return offset(u+int64(i)) != before })
				found[name] = append(found[name], u+int64(within))
				before = after
			}
		}
	}
	return found, nil
})

func transitionsOf(t testing.TB, name string) []int64 {
	t.Helper()
	all, err := transitions()
	if err != nil {
		t.Fatal(err)
	}
	return all[name]
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := tzdata.Load(name)
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

// agree compares the schedule with the judge under all policies. It leaves out a margin at both ends
// of the walk.
func agree(t failer, p job.Plan, loc *time.Location, w walk) {
	t.Helper()
	from, to := w.instants[0]+margin, w.instants[len(w.instants)-1]-margin
	p.Timezone = loc.String()
	j := newJudge(w, p)
	for _, policy := range policies {
		p.DSTGap, p.DSTOverlap = policy.DSTGap, policy.DSTOverlap
		var want, got []int64
		for _, u := range j.slots(p.DSTGap, p.DSTOverlap) {
			if u > from && u <= to {
				want = append(want, u)
			}
		}
		s, err := job.ParseSchedule("report", p)
		if err != nil && len(want) == 0 && strings.Contains(err.Error(), "can never fire") {
			continue // under another policy a gap may cause slots
		}
		if err != nil {
			t.Fatalf("%+v: %v; the judge has %d slots", p, err, len(want))
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
		"30 2 * * *", "0 0 * * *", "0-59/7 0-3,23 * * *", "5 */2 * * *", "15 1 1,29-31 * 0",
	}
	for _, name := range judgedZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, name)
			changes := transitionsOf(t, name)
			if len(changes) == 0 {
				changes = []int64{1e9} // the zone has no transition: any day is as good
			}
			for _, change := range changes {
				w := newWalk(loc, 60, change-2*day-margin, change+2*day+margin)
				for _, schedule := range schedules {
					agree(t, job.Plan{Schedule: schedule}, loc, w)
				}
			}
		})
	}
}
