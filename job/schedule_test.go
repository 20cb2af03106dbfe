package job_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/job"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.UTC()
}

// first returns the first n slots after an instant, as RFC 3339 in the plan's zone.
func first(t testing.TB, p job.Plan, after string, n int) []string {
	t.Helper()
	s := parse(t, p)
	var slots []string
	for u := s.Next(at(t, after)); len(slots) < n && !u.IsZero(); u = s.Next(u) {
		slots = append(slots, u.In(s.Location()).Format(time.RFC3339))
	}
	return slots
}

func expect(t testing.TB, p job.Plan, after string, want ...string) {
	t.Helper()
	if got := first(t, p, after, len(want)); !slices.Equal(got, want) {
		t.Errorf("%+v after %s:\n got %s\nwant %s", p, after, strings.Join(got, " "), strings.Join(want, " "))
	}
}

// Invariant 1: the same definition has the same slots on every machine.
func TestNextDependsOnNothingButItsArguments(t *testing.T) {
	local := time.Local
	t.Cleanup(func() { time.Local = local }) // the test changes a global, so it is not parallel
	t.Setenv("TZ", "Asia/Tokyo")
	t.Setenv("ZONEINFO", "testdata")
	plan := job.Plan{Schedule: "H 2 * * *", Timezone: "America/New_York", Spread: time.Hour}
	after := time.Date(2026, 3, 7, 12, 0, 0, 123, time.UTC)
	want := parse(t, plan).Next(after)
	for _, zone := range []string{"UTC", "Pacific/Apia", "America/Sao_Paulo"} {
		loc, err := tzdata.Load(zone)
		if err != nil {
			t.Fatal(err)
		}
		time.Local = loc
		s := parse(t, plan)
		for range 3 { // a call does not affect later ones
			if got := s.Next(after.In(loc)); got != want || got.Location() != time.UTC {
				t.Fatalf("in %s: %v, want %v", zone, got, want)
			}
			s.Next(after.AddDate(20, 0, 0))
		}
	}
}

func TestWallTimeInAGapRunsAtTheFirstInstantAfterIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, schedule, zone, after, want string }{
		{"spring in Berlin", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00"},
		{"with seconds", "15 30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00"},
		{"midnight in Sao Paulo", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-04T01:00:00-02:00"},
		{"@daily too", "@daily", "America/Havana", "2026-03-07T12:00:00Z", "2026-03-08T01:00:00-04:00"},
		{"half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-04T02:30:00+11:00"},
		{"the day Samoa skipped", "30 9 30 12 *", "Pacific/Apia", "2011-12-20T00:00:00Z", "2011-12-31T00:00:00+14:00"},
		{"the end of Ramadan", "30 2 * * *", "Africa/Casablanca", "2026-03-21T12:00:00Z", "2026-03-22T03:00:00+01:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := job.Plan{Schedule: c.schedule, Timezone: c.zone}
			expect(t, p, c.after, c.want)
			p.DSTGap = job.GapSkip
			if got := first(t, p, c.after, 1); got[0] <= c.want {
				t.Errorf("with dst_gap skip: %s", got[0])
			}
		})
	}
}

func TestRepeatedWallTimeRunsWhereThePolicySays(t *testing.T) {
	t.Parallel()
	p := job.Plan{Schedule: "30 2 * * *", Timezone: "Europe/Berlin"}
	const eve = "2026-10-24T12:00:00Z"
	expect(t, p, eve, "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00")
	p.DSTOverlap = job.RepeatSecond
	expect(t, p, eve, "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00")
	p.DSTOverlap = job.RepeatBoth
	expect(t, p, eve, "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00")

	// Lord Howe repeats half an hour: 01:30 twice, 01:15 once.
	p = job.Plan{Schedule: "15,30 1 * * *", Timezone: "Australia/Lord_Howe", DSTOverlap: job.RepeatBoth}
	expect(t, p, "2026-04-04T00:00:00Z",
		"2026-04-05T01:15:00+11:00", "2026-04-05T01:30:00+11:00", "2026-04-05T01:30:00+10:30", "2026-04-06T01:15:00+10:30")

	// Next between the two occurrences does not return the second one.
	p = job.Plan{Schedule: "30 2 * * *", Timezone: "Europe/Berlin"}
	expect(t, p, "2026-10-25T00:30:00Z", "2026-10-26T02:30:00+01:00")
}

func TestHourFieldThatBeginsWithAStarFollowsElapsedTime(t *testing.T) {
	t.Parallel()
	for _, schedule := range []string{"30 * * * *", "0 30 * * * *", "30 */1 * * *"} {
		p := job.Plan{Schedule: schedule, Timezone: "Europe/Berlin"}
		expect(t, p, "2026-03-29T00:00:00Z", "2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00")
		expect(t, p, "2026-10-25T00:00:00Z", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00")
	}
	// When the clocks go forward, 02:00 does not occur. When they go back, it occurs twice.
	p := job.Plan{Schedule: "0 */2 * * *", Timezone: "Europe/Berlin"}
	expect(t, p, "2026-03-28T23:00:00Z", "2026-03-29T04:00:00+02:00")
	expect(t, p, "2026-10-24T22:00:00Z", "2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T04:00:00+01:00")
	// @hourly follows elapsed time, but 0-23 does not.
	expect(t, job.Plan{Schedule: "@hourly", Timezone: "Europe/Berlin"}, "2026-10-24T23:00:00Z",
		"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00")
	expect(t, job.Plan{Schedule: "0 0-23 * * *", Timezone: "Europe/Berlin"}, "2026-10-24T23:00:00Z",
		"2026-10-25T02:00:00+02:00", "2026-10-25T03:00:00+01:00")
}

func TestTwoWallTimesThatMapToOneInstantAreOneSlot(t *testing.T) {
	t.Parallel()
	// 02:00, 02:20 and 02:40 are in the gap, which ends at 03:00.
	expect(t, job.Plan{Schedule: "0,20,40 1-3 * * *", Timezone: "Europe/Berlin"}, "2026-03-29T00:30:00Z",
		"2026-03-29T01:40:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00")
}

func TestEveryIsCountedFromAFixedEpochAndKnowsNoZone(t *testing.T) {
	t.Parallel()
	expect(t, job.Plan{Schedule: "@every 90s"}, "1970-01-01T00:00:00Z", "1970-01-01T00:01:30Z", "1970-01-01T00:03:00Z")
	expect(t, job.Plan{Schedule: "@every 90s"}, "1969-12-31T23:59:00Z", "1970-01-01T00:00:00Z")
	expect(t, job.Plan{Schedule: "@every 24h", Timezone: "Asia/Tokyo"}, "2026-06-01T12:00:00Z", "2026-06-02T09:00:00+09:00")
	expect(t, job.Plan{Schedule: "@every 7m"}, "2026-06-01T00:00:00Z", "2026-06-01T00:01:00Z", "2026-06-01T00:08:00Z")
	expect(t, job.Plan{Schedule: "@every 10m", Timezone: "Asia/Tokyo", Exclude: []string{"* 0-22 * * *", "2026-06-01"}},
		"2026-06-01T00:00:00Z", "2026-06-02T23:00:00+09:00", "2026-06-02T23:10:00+09:00")
	// In the night when the clocks go forward, the excluded hours are an hour shorter.
	expect(t, job.Plan{Schedule: "@every 10m", Timezone: "Europe/Berlin", Exclude: []string{"* 1-4 * * *"}},
		"2026-03-28T23:40:00Z", "2026-03-29T00:50:00+01:00", "2026-03-29T05:00:00+02:00")
}

func TestEveryCountsFromFromIfItIsGiven(t *testing.T) {
	t.Parallel()
	from := at(t, "2026-06-01T00:00:03Z")
	expect(t, job.Plan{Schedule: "@every 7m", From: from}, "2026-01-01T00:00:00Z", "2026-06-01T00:00:03Z", "2026-06-01T00:07:03Z")
	expect(t, job.Plan{Schedule: "@every 7m", From: from}, "2026-06-01T01:00:00Z", "2026-06-01T01:03:03Z")
	// Hours are elapsed time: the clocks show another time after they have changed.
	expect(t, job.Plan{Schedule: "@every 336h", Timezone: "Europe/Berlin", From: at(t, "2026-03-16T09:00:00+01:00")}, "2026-03-16T08:00:00Z",
		"2026-03-30T10:00:00+02:00", "2026-04-13T10:00:00+02:00")
	// A fraction of a second counts as the next whole one.
	expect(t, job.Plan{Schedule: "@every 1h", From: from.Add(-time.Millisecond)}, "2026-01-01T00:00:00Z", "2026-06-01T00:00:03Z")
	// Before 1970, too.
	expect(t, job.Plan{Schedule: "@every 7h", From: at(t, "1969-12-31T23:00:00Z")}, "1969-01-01T00:00:00Z", "1969-12-31T23:00:00Z", "1970-01-01T06:00:00Z")
	if one, other := parse(t, job.Plan{Schedule: "@every 1h", From: at(t, "2026-06-01T00:30:00Z")}), parse(t, job.Plan{Schedule: "@every 1h", From: at(t, "2026-06-01T00:00:00Z")}); one.Key() == other.Key() {
		t.Error("two phases have one key")
	}
}

func TestEveryInDaysKeepsTheDayAndTheTimeOnTheClock(t *testing.T) {
	t.Parallel()
	berlin := func(schedule, from string) job.Plan {
		return job.Plan{Schedule: schedule, Timezone: "Europe/Berlin", From: at(t, from)}
	}
	monday := berlin("@every 2w", "2026-03-16T09:00:00+01:00")
	expect(t, monday, "2026-01-01T00:00:00Z",
		"2026-03-16T09:00:00+01:00", "2026-03-30T09:00:00+02:00", "2026-04-13T09:00:00+02:00", "2026-04-27T09:00:00+02:00")
	expect(t, monday, "2026-10-13T00:00:00Z", "2026-10-26T09:00:00+01:00", "2026-11-09T09:00:00+01:00")
	expect(t, berlin("@every 14d", "2026-03-16T09:00:00+01:00"), "2026-10-13T00:00:00Z", "2026-10-26T09:00:00+01:00")
	expect(t, berlin("@every 3d", "2026-02-26T23:30:05+01:00"), "2026-02-27T00:00:00Z", "2026-03-01T23:30:05+01:00", "2026-03-04T23:30:05+01:00")
	// from is an instant, so its date is that of the zone: 16 March in Berlin.
	expect(t, berlin("@every 1w", "2026-03-15T23:30:00Z"), "2026-03-16T00:00:00Z", "2026-03-23T00:30:00+01:00", "2026-03-30T00:30:00+02:00")

	gap := berlin("@every 7d", "2026-03-22T02:30:00+01:00")
	expect(t, gap, "2026-03-23T00:00:00Z", "2026-03-29T03:00:00+02:00", "2026-04-05T02:30:00+02:00")
	gap.DSTGap = job.GapSkip
	expect(t, gap, "2026-03-23T00:00:00Z", "2026-04-05T02:30:00+02:00")
	twice := berlin("@every 7d", "2026-10-18T02:30:00+02:00")
	expect(t, twice, "2026-10-19T00:00:00Z", "2026-10-25T02:30:00+02:00", "2026-11-01T02:30:00+01:00")
	twice.DSTOverlap = job.RepeatBoth
	expect(t, twice, "2026-10-19T00:00:00Z", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-11-01T02:30:00+01:00")

	monday.Exclude = []string{"2026-03-30", "* * * 4 *"}
	expect(t, monday, "2026-03-17T00:00:00Z", "2026-05-11T09:00:00+02:00")
	monday.Until = at(t, "2026-05-25T09:00:00+02:00")
	if got := first(t, monday, "2026-01-01T00:00:00Z", 5); !slices.Equal(got, []string{"2026-03-16T09:00:00+01:00", "2026-05-11T09:00:00+02:00"}) {
		t.Errorf("with until: %v", got)
	}
	if a, b := parse(t, berlin("@every 2w", "2026-03-16T09:00:00+01:00")), parse(t, berlin("@every 14d", "2026-03-16T09:00:00+01:00")); a.Key() != b.Key() {
		t.Errorf("%s and %s differ", a.Key(), b.Key())
	}
}

func TestAtFiresOnceAndStaysParseableAfterwards(t *testing.T) {
	t.Parallel()
	p := job.Plan{Schedule: "@at 2027-01-01T01:00:00+01:00"}
	if got := first(t, p, "2026-11-21T00:00:00Z", 5); !slices.Equal(got, []string{"2027-01-01T00:00:00Z"}) {
		t.Errorf("got %v", got)
	}
	if got := parse(t, p).Next(at(t, "2027-01-01T00:00:00Z")); !got.IsZero() {
		t.Errorf("after it: %v", got)
	}
	if got := parse(t, job.Plan{Schedule: "* * * * *", Until: at(t, "2001-01-01T00:00:00Z")}).Next(at(t, "2026-01-01T00:00:00Z")); !got.IsZero() {
		t.Errorf("past until: %v", got)
	}
}

func TestFromIsInclusiveAndUntilExclusive(t *testing.T) {
	t.Parallel()
	p := job.Plan{Schedule: "0 * * * *", From: at(t, "2026-01-01T10:00:00Z"), Until: at(t, "2026-01-01T12:00:00Z")}
	want := []string{"2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"}
	if got := first(t, p, "2020-01-01T00:00:00Z", 5); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	p.From, p.Until = p.From.Add(1), p.Until.Add(1)
	want = []string{"2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z"}
	if got := first(t, p, "2020-01-01T00:00:00Z", 5); !slices.Equal(got, want) {
		t.Errorf("a nanosecond later: got %v", got)
	}
}

func TestExcludeTakesDatesAndExpressionsOfTheJobsZoneAway(t *testing.T) {
	t.Parallel()
	expect(t, job.Plan{Schedule: "0 0 * * *", Timezone: "Asia/Tokyo", Exclude: []string{"2026-12-25", "* * * * SUN"}},
		"2026-12-24T00:00:00Z", "2026-12-26T00:00:00+09:00", "2026-12-28T00:00:00+09:00")
	// An exclusion of five fields excludes the whole minute. One of six fields excludes a second.
	expect(t, job.Plan{Schedule: "*/20 * * * * *", Exclude: []string{"1 * * * *"}}, "2026-01-01T00:00:30Z",
		"2026-01-01T00:00:40Z", "2026-01-01T00:02:00Z")
	expect(t, job.Plan{Schedule: "*/20 * * * * *", Exclude: []string{"0 1 * * * *"}}, "2026-01-01T00:00:30Z",
		"2026-01-01T00:00:40Z", "2026-01-01T00:01:20Z")
	// An exclusion applies to the wall time at the slot's instant, not to the planned wall time.
	gap := job.Plan{Schedule: "30 2 * * *", Timezone: "Europe/Berlin", Exclude: []string{"30 2 29 3 *"}}
	expect(t, gap, "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00")
	gap.Exclude = []string{"0 3 * * *"}
	expect(t, gap, "2026-03-28T12:00:00Z", "2026-03-30T02:30:00+02:00")
	// The slot of the day that Samoa skipped is on the next day, which is not excluded.
	expect(t, job.Plan{Schedule: "0 12 30 12 *", Timezone: "Pacific/Apia", Exclude: []string{"2011-12-30"}},
		"2011-12-20T00:00:00Z", "2011-12-31T00:00:00+14:00")
}

func TestRareDatesAreFound(t *testing.T) {
	t.Parallel()
	expect(t, job.Plan{Schedule: "0 0 29 2 *"}, "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z", "2108-02-29T00:00:00Z")
	// 29 February on a Monday: there is none for forty years.
	expect(t, job.Plan{Schedule: "0 0 29 2 *", Exclude: []string{"* * * * TUE-SUN"}}, "2072-03-01T00:00:00Z",
		"2112-02-29T00:00:00Z")
	expect(t, job.Plan{Schedule: "0 0 29 2 MON"}, "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z")
	expect(t, job.Plan{Schedule: "0 0 31 4,6,12 *"}, "2026-01-01T00:00:00Z", "2026-12-31T00:00:00Z")
	// The last Sunday of March at an hour that Berlin has skipped each year since 1981.
	expect(t, job.Plan{Schedule: "30 2 25-31 3 *", Exclude: []string{"* * * * MON-SAT"}, Timezone: "Europe/Berlin", DSTGap: job.GapSkip},
		"1970-01-01T00:00:00Z", "1970-03-29T02:30:00+01:00")
}

func TestDayFieldsFollowCron(t *testing.T) {
	t.Parallel()
	const start = "2026-11-21T00:00:00Z" // a Saturday
	for _, c := range []struct{ schedule, want string }{
		{"0 0 1 * MON", "2026-11-23"}, // either day field suffices
		{"0 0 1 * *", "2026-12-01"},
		{"0 0 * * MON", "2026-11-23"},
		{"0 0 ? * 3", "2026-11-25"},
		{"0 0 1 * ?", "2026-12-01"},
		{"0 0 * * 7", "2026-11-22"},
		{"0 0 * * 5-7", "2026-11-22"},
		{"0 0 * * MON-SUN", "2026-11-22"},
		{"0 0 * * tue", "2026-11-24"},
		{"0 0 * jan *", "2027-01-01"},
		{"0 0 */30 * MON", "2026-11-23"}, // a star with a step counts as a restriction
		{"@weekly", "2026-11-22"},
		{"@monthly", "2026-12-01"},
		{"@yearly", "2027-01-01"},
		{"@annually", "2027-01-01"},
		{"@daily", "2026-11-22"},
		{"@midnight", "2026-11-22"},
		{" 0\t0  1 1 * ", "2027-01-01"},
	} {
		expect(t, job.Plan{Schedule: c.schedule}, start, c.want+"T00:00:00Z")
	}
}

// The dates are from a printed calendar.
func TestDaysThatDependOnTheMonth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ days, after, want string }{
		{"L * *", "2026-11-21", "2026-11-30 2026-12-31 2027-01-31 2027-02-28"},
		{"L 2 *", "2026-11-21", "2027-02-28 2028-02-29"},
		{"L-3 * *", "2026-11-21", "2026-11-27 2026-12-28 2027-01-28 2027-02-25"},
		{"L-28 2 *", "2026-11-21", "2028-02-01 2032-02-01"},
		{"15,L * *", "2026-11-21", "2026-11-30 2026-12-15 2026-12-31"},
		{"15W * *", "2026-08-01", "2026-08-14 2026-09-15 2026-10-15 2026-11-16"},
		{"1W * *", "2026-07-31", "2026-08-03 2026-09-01 2026-10-01 2026-11-02"},
		{"31W * *", "2026-09-30", "2026-10-30 2026-12-31 2027-01-29 2027-03-31"},
		{"LW * *", "2026-09-30", "2026-10-30 2026-11-30 2026-12-31 2027-01-29"},
		{"lw * *", "2026-10-29", "2026-10-30"},
		{"* * 5L", "2026-11-21", "2026-11-27 2026-12-25 2027-01-29"},
		{"* * FRIL", "2026-11-21", "2026-11-27 2026-12-25 2027-01-29"},
		{"* * 7L", "2026-11-21", "2026-11-29 2026-12-27"},
		{"* * FRI#2", "2026-11-21", "2026-12-11 2027-01-08"},
		{"* * FRI#5", "2026-10-01", "2026-10-30 2027-01-29 2027-04-30"},
		{"* * 0#1,7#3", "2026-11-30", "2026-12-06 2026-12-20 2027-01-03"},
		{"L * FRI#2", "2026-11-21", "2026-11-30 2026-12-11 2026-12-31"}, // either day field suffices
	} {
		var want []string
		for _, date := range strings.Fields(c.want) {
			want = append(want, date+"T00:00:00Z")
		}
		expect(t, job.Plan{Schedule: "0 0 " + c.days}, c.after+"T00:00:00Z", want...)
	}
	expect(t, job.Plan{Schedule: "0 0 * * FRI", Exclude: []string{"* * * * FRIL"}}, "2026-11-19T00:00:00Z",
		"2026-11-20T00:00:00Z", "2026-12-04T00:00:00Z", "2026-12-11T00:00:00Z", "2026-12-18T00:00:00Z", "2027-01-01T00:00:00Z")
}

func TestPlanThatCanNeverFireIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plan job.Plan
		want string
	}{
		{job.Plan{Schedule: "0 0 30 2 *"}, `schedule "0 0 30 2 *": can never fire: no year has such a date`},
		{job.Plan{Schedule: "0 0 31 4,6,9,11 *"}, "no year has such a date"},
		{job.Plan{Schedule: "0 0 L-29 2 *"}, "no year has such a date"},
		{job.Plan{Schedule: "0 0 31W 4 *"}, "no year has such a date"},
		{job.Plan{Schedule: "* * * * * *", Exclude: []string{"* * * * *"}}, "exclude leaves no slot"},
		{job.Plan{Schedule: "* * * * * *", Exclude: []string{"*/2 * * * * *", "1-59/2 * * * * *"}}, "exclude leaves no slot"},
		{job.Plan{Schedule: "* * * * *", Exclude: []string{"* * * * 0-3", "* * * * 4-6"}}, "exclude leaves no slot"},
		{job.Plan{Schedule: "@every 1s", Exclude: []string{"* * * * *"}}, "exclude leaves no slot"},
		{job.Plan{Schedule: "@every 1m", Exclude: []string{"0 * * * * *"}}, "exclude leaves no slot"},
		{job.Plan{Schedule: "@at 2027-01-01T00:00:00Z", Exclude: []string{"2027-01-01"}}, "exclude leaves no slot"},
		{job.Plan{Schedule: "@every 2w", Timezone: "Europe/Berlin", DSTGap: job.GapSkip, From: at(t, "2026-03-16T09:00:00+01:00"), Exclude: []string{"* * * * MON"}}, "exclude leaves no slot"},
		{job.Plan{Schedule: "@at 2027-01-01T00:00:00Z", Until: at(t, "2026-01-01T00:00:00Z")}, "no slot is between from and until"},
		{job.Plan{Schedule: "0 0 1 1 *", From: at(t, "2026-02-01T00:00:00Z"), Until: at(t, "2026-03-01T00:00:00Z")}, "no slot is between from and until"},
	} {
		_, err := job.ParseSchedule("report", c.plan)
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.plan, err, c.want)
		}
	}
}

func TestBadPlansAreQuotedWithWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plan job.Plan
		want string
	}{
		{job.Plan{Schedule: "61 * * * *"}, `invalid schedule "61 * * * *": minute 61: want 0-59`},
		{job.Plan{Schedule: ""}, `schedule "": it is empty: want a schedule like "0 7 * * MON-FRI"`},
		{job.Plan{Schedule: "* * *"}, `schedule "* * *": 3 fields: want 5 (minute, hour, day of month, month, day of week), or 6 with seconds first`},
		{job.Plan{Schedule: "* * * * * * *"}, `7 fields`},
		{job.Plan{Schedule: "*/0 * * * *"}, `minute "*/0": step 0: want 1-60`},
		{job.Plan{Schedule: "0-0/99999999999 * * * *"}, `minute "0-0/99999999999": step "99999999999": want 1-60`},
		{job.Plan{Schedule: "* 24 * * *"}, `hour 24: want 0-23`},
		{job.Plan{Schedule: "* * 0 * *"}, `day of month 0: want 1-31`},
		{job.Plan{Schedule: "* * * 13 *"}, `month 13: want 1-12 or JAN-DEC`},
		{job.Plan{Schedule: "* * * * FUN"}, `day of week "FUN": want 0-6 or SUN-SAT`},
		{job.Plan{Schedule: "* * * * 8"}, `day of week 8: want 0-6 or SUN-SAT`},
		{job.Plan{Schedule: "0 0 L-31 * *"}, `day of month "L-31": want L-1 to L-30`},
		{job.Plan{Schedule: "0 0 L-0 * *"}, `day of month "L-0": want L-1 to L-30`},
		{job.Plan{Schedule: "0 0 32W * *"}, `day of month "32W": want 1W to 31W or LW`},
		{job.Plan{Schedule: "0 0 1-15W * *"}, `day of month "1-15W": want 1W to 31W or LW`},
		{job.Plan{Schedule: "0 0 L/2 * *"}, `day of month "L/2": "L": want 1-31, L, L-3, LW or 15W`},
		{job.Plan{Schedule: "0 0 L-3W * *"}, `day of month "L-3W": want L-1 to L-30`},
		{job.Plan{Schedule: "0 L * * *"}, `hour "L": want 0-23`},
		{job.Plan{Schedule: "0 0 * * L"}, `day of week "L": want a day before it, like FRIL`},
		{job.Plan{Schedule: "0 0 * * FRI#6"}, `day of week "FRI#6": want FRI#1 to FRI#5, or FRIL`},
		{job.Plan{Schedule: "0 0 * * FRI#0"}, `day of week "FRI#0": want FRI#1 to FRI#5`},
		{job.Plan{Schedule: "0 0 * * 8#1"}, `day of week "8#1": 8: want 0-6 or SUN-SAT, FRIL or FRI#2`},
		{job.Plan{Schedule: "0 0 * * MON-FRI#1"}, `day of week "MON-FRI#1": "MON-FRI": want 0-6`},
		{job.Plan{Schedule: "0 9 * * * 2027"}, `6 fields, of which the last, 2027, looks like a year: an expression has none; use from and until`},
		{job.Plan{Schedule: "0 0 9 ? * MON 2027"}, `7 fields, of which the last, 2027, looks like a year`},
		{job.Plan{Schedule: "cron(0 9 * * ? *)"}, `it is an expression of AWS`},
		{job.Plan{Schedule: "rate(5 minutes)"}, `it is an expression of AWS: want an interval like "@every 5m"`},
		{job.Plan{Schedule: "60 * * * * *"}, `second 60: want 0-59`},
		{job.Plan{Schedule: "30-10 * * * *"}, `minute "30-10": the range begins after it ends; write two, like 30-59,0-10`},
		{job.Plan{Schedule: "1,,2 * * * *"}, `minute "": a value is missing`},
		{job.Plan{Schedule: "1- * * * *"}, `minute "1-": "": want 0-59`},
		{job.Plan{Schedule: "*-5 * * * *"}, `minute "*-5": "*": want 0-59`},
		{job.Plan{Schedule: "-1 * * * *"}, `minute "-1": "": want 0-59`},
		{job.Plan{Schedule: "+1 * * * *"}, `minute "+1": want 0-59`},
		{job.Plan{Schedule: "*/2/3 * * * *"}, `step "2/3": want 1-60`},
		{job.Plan{Schedule: "H(5) * * * *"}, `minute "H(5)": want H, H(0-59) or either with a step`},
		{job.Plan{Schedule: "H(0-60) * * * *"}, `minute "H(0-60)": 60: want 0-59`},
		{job.Plan{Schedule: "H(1-3)/9 * * * *"}, `step 9 is longer than the range 1-3`},
		{job.Plan{Schedule: "TZ="}, `schedule "TZ=": an expression has no time zone; use timezone:`},
		{job.Plan{Schedule: "CRON_TZ=UTC * * * * *"}, `use timezone: UTC`},
		{job.Plan{Schedule: "@dayly"}, `schedule "@dayly": unknown word; did you mean @daily?`},
		{job.Plan{Schedule: "@reboot"}, `unknown word: want @yearly`},
		{job.Plan{Schedule: "@every"}, `"" is not a duration; want @every 90s`},
		{job.Plan{Schedule: "@every 90"}, `"90" is not a duration`},
		{job.Plan{Schedule: "@every 0s"}, `every 0s: want at least 1s`},
		{job.Plan{Schedule: "@every -5s"}, `every -5s: want at least 1s`},
		{job.Plan{Schedule: "@every 2w"}, `schedule "@every 2w": it counts days from a date: want from, the first slot, like 2026-01-05T09:00:00+01:00`},
		{job.Plan{Schedule: "@every 0d"}, `"0d" is not a number of days or weeks, of at most 3660 days; want @every 3d or @every 2w`},
		{job.Plan{Schedule: "@every 1.5d"}, `"1.5d" is not a number of days or weeks`},
		{job.Plan{Schedule: "@every 1w2d"}, `"1w2d" is not a number of days or weeks`},
		{job.Plan{Schedule: "@every 1d12h"}, `"1d12h" is not a duration; want @every 90s, @every 1h30m, @every 3d or @every 2w`},
		{job.Plan{Schedule: "@every 523w"}, `"523w" is not a number of days or weeks, of at most 3660 days`},
		{job.Plan{Schedule: "@every 999999999w"}, `"999999999w" is not a number`},
		{job.Plan{Schedule: "@every 1500ms"}, `every 1.5s: want whole seconds`},
		{job.Plan{Schedule: "@at tomorrow"}, `"tomorrow" is not an instant; want @at 2027-01-01T00:00:00Z`},
		{job.Plan{Schedule: "@at 2027-01-01T00:00:00.5Z"}, `want whole seconds`},
		{job.Plan{Schedule: "0 0 * * ⛄"}, `only printable ASCII`},
		{job.Plan{Schedule: "0 0 * * \x00"}, `byte 8 is "\x00": only printable ASCII`},
		{job.Plan{Schedule: strings.Repeat("0", 2000)}, `2000 bytes, at most 1024`},
		{job.Plan{Timezone: "Europe/berlin"}, `timezone "Europe/berlin": no such zone; did you mean Europe/Berlin?`},
		{job.Plan{Timezone: "Local"}, `timezone "Local": it means another zone on every machine`},
		{job.Plan{Timezone: "../etc/passwd"}, `timezone "../etc/passwd": no such zone; want an IANA name`},
		{job.Plan{Timezone: "UTC\n"}, `timezone "UTC\n": no such zone`},
		{job.Plan{DSTGap: "before"}, `dst_gap "before": want after or skip`},
		{job.Plan{DSTOverlap: "third"}, `dst_overlap "third": want first, second or both`},
		{job.Plan{Spread: -1}, `spread -1ns: want whole seconds, from 0s to 24h0m0s`},
		{job.Plan{Spread: 25 * time.Hour}, `spread 25h0m0s`},
		{job.Plan{From: at(t, "2026-01-02T00:00:00Z"), Until: at(t, "2026-01-01T00:00:00Z")}, `until 2026-01-01T00:00:00Z: want an instant after from 2026-01-02T00:00:00Z`},
		{job.Plan{Exclude: []string{"christmas"}}, `exclude "christmas": want a date like 2026-12-25, or a cron expression`},
		{job.Plan{Exclude: []string{"2026-02-30"}}, `exclude "2026-02-30": want a date`},
		{job.Plan{Exclude: []string{"H * * * *"}}, `exclude "H * * * *": minute "H": H needs a job's name`},
		{job.Plan{Exclude: slices.Repeat([]string{"* * * * *"}, 65)}, `65 expressions, at most 64`},
	} {
		if c.plan.Schedule == "" && !strings.HasPrefix(c.want, "schedule") {
			c.plan.Schedule = "* * * * *"
		}
		_, err := job.ParseSchedule("report", c.plan)
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v:\n got %v\nwant %s", c.plan, err, c.want)
		}
	}
}

func TestAllThatIsWrongWithAPlanIsNamed(t *testing.T) {
	t.Parallel()
	_, err := job.ParseSchedule("report", job.Plan{Schedule: "61 * * * *", Timezone: "Mars", Spread: -1, Exclude: []string{"x"}})
	for _, want := range []string{"minute 61", "Mars", "spread", "exclude"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestKeyTellsSchedulesApartByTheirSlotsAlone(t *testing.T) {
	t.Parallel()
	base := job.Plan{Schedule: "0 0 * * MON", Exclude: []string{"2026-12-25", "* * * * 0"}}
	key := func(name string, p job.Plan) string {
		s, err := job.ParseSchedule(name, p)
		if err != nil {
			t.Fatal(err)
		}
		return s.Key()
	}
	for _, same := range []job.Plan{
		{Schedule: "0  0 * * 1", Exclude: []string{"* * * * SUN", "2026-12-25", "2026-12-25"}},
		{Schedule: "0 0 0 ? * mon", Timezone: "UTC", DSTGap: job.GapAfter, Exclude: base.Exclude},
	} {
		if key("a", same) != key("b", base) {
			t.Errorf("%+v and %+v differ", same, base)
		}
	}
	for _, other := range []job.Plan{
		{Schedule: "0 0 * * TUE", Exclude: base.Exclude},
		{Schedule: "1 0 * * MON", Exclude: base.Exclude},
		{Schedule: "0 0 * * MON", Exclude: base.Exclude[:1]},
		{Schedule: "0 0 * * MON", Exclude: base.Exclude, Timezone: "Europe/Berlin"},
		{Schedule: "0 0 * * MON", Exclude: base.Exclude, DSTGap: job.GapSkip},
		{Schedule: "0 0 * * MON", Exclude: base.Exclude, DSTOverlap: job.RepeatBoth},
		{Schedule: "0 0 * * MON", Exclude: base.Exclude, Spread: time.Hour},
		{Schedule: "0 0 * * MON", Exclude: base.Exclude, From: at(t, "2020-01-01T00:00:00Z")},
		{Schedule: "0 0 * * MON", Exclude: base.Exclude, Until: at(t, "2120-01-01T00:00:00Z")},
		{Schedule: "@every 90s", Exclude: base.Exclude},
		{Schedule: "@at 2027-01-01T00:00:00Z", Exclude: base.Exclude},
	} {
		if key("a", other) == key("a", base) {
			t.Errorf("%+v has the key of %+v", other, base)
		}
	}
	if key("a", job.Plan{Schedule: "H * * * *"}) == key("b", job.Plan{Schedule: "H * * * *"}) {
		t.Error("two jobs whose H differs share a key")
	}
}

func TestLastIsQuickHoweverLongTheRangeIs(t *testing.T) {
	t.Parallel()
	old, now := at(t, "1970-01-01T00:00:00Z"), at(t, "2026-11-21T07:00:00Z")
	for _, schedule := range []string{"* * * * * *", "@every 1s", "0 0 29 2 *", "* * * 2 * *", "0 7 * * MON-FRI"} {
		s := parse(t, job.Plan{Schedule: schedule, Timezone: "Europe/Berlin"})
		slots := s.Last(old, now, 1000)
		if len(slots) == 0 || !slices.IsSortedFunc(slots, time.Time.Compare) {
			t.Errorf("%s: %d slots", schedule, len(slots))
		}
		for i, slot := range slots {
			if next := s.Next(slot); i+1 < len(slots) && !next.Equal(slots[i+1]) {
				t.Fatalf("%s: after %v comes %v, not %v", schedule, slot, next, slots[i+1])
			}
		}
		if next := s.Next(slots[len(slots)-1]); !next.After(now) {
			t.Errorf("%s: left out %v", schedule, next)
		}
	}
}

func TestYearsEndWithThoseThatAnIDCanName(t *testing.T) {
	t.Parallel()
	s := parse(t, job.Plan{Schedule: "0 0 * * *"})
	if got := s.Next(at(t, "9999-12-30T12:00:00Z")); !got.Equal(at(t, "9999-12-31T00:00:00Z")) {
		t.Errorf("got %v", got)
	}
	for _, far := range []time.Time{at(t, "9999-12-31T00:00:00Z"), time.Unix(1<<62, 0)} {
		if got := s.Next(far); !got.IsZero() {
			t.Errorf("after %v: %v", far.Unix(), got)
		}
	}
	if got := s.Next(time.Unix(-1<<62, 0)); !got.IsZero() && got.Year() != 1 {
		t.Errorf("the first slot ever: %v", got)
	}
}

func ExampleSchedule_Next() {
	s, err := job.ParseSchedule("report", job.Plan{Schedule: "30 2 * * *", Timezone: "Europe/Berlin"})
	if err != nil {
		panic(err)
	}
	slot := time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)
	for range 3 { // the clocks go forward in the second night
		slot = s.Next(slot)
		fmt.Println(slot.Format(time.RFC3339), slot.In(s.Location()).Format("15:04 MST"))
	}
	// Output:
	// 2026-03-28T01:30:00Z 02:30 CET
	// 2026-03-29T01:00:00Z 03:00 CEST
	// 2026-03-30T00:30:00Z 02:30 CEST
}

func ExampleSchedule_Between() {
	s, err := job.ParseSchedule("report", job.Plan{Schedule: "0 7 * * MON-FRI", Exclude: []string{"2026-12-25"}})
	if err != nil {
		panic(err)
	}
	for slot := range s.Between(time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC), time.Date(2026, 12, 29, 0, 0, 0, 0, time.UTC)) {
		fmt.Println(job.NewSlot("report", slot).ID())
	}
	// Output:
	// report:2026-12-24T07:00:00Z
	// report:2026-12-28T07:00:00Z
}

func ExampleParseSchedule_error() {
	_, err := job.ParseSchedule("report", job.Plan{Schedule: "61 * * * *", Timezone: "Europe/berlin"})
	fmt.Println(err)
	// Output:
	// invalid schedule "61 * * * *": minute 61: want 0-59
	// invalid timezone "Europe/berlin": no such zone; did you mean Europe/Berlin?
}

func BenchmarkNext(b *testing.B) {
	for _, p := range []job.Plan{
		{Schedule: "* * * * * *"},
		{Schedule: "0 7 * * MON-FRI", Timezone: "Europe/Berlin"},
		{Schedule: "*/5 * * * *", Timezone: "America/New_York"},
		{Schedule: "0 0 29 2 *", Timezone: "Europe/Berlin"},
		{Schedule: "0 9 * * *", Timezone: "Europe/Berlin", Exclude: []string{"2026-12-25", "* * * * SUN"}},
		{Schedule: "@every 90s"},
	} {
		b.Run(strings.ReplaceAll(p.Schedule, " ", "_"), func(b *testing.B) {
			s := parse(b, p)
			u := at(b, "2026-03-28T12:00:00Z")
			for b.Loop() {
				s.Next(u)
			}
		})
	}
}

func BenchmarkParseSchedule(b *testing.B) {
	for name, exclude := range map[string][]string{"plain": nil, "exclude": {"2026-12-25", "* * * * SUN"}} {
		b.Run(name, func(b *testing.B) {
			p := job.Plan{Schedule: "H 7 * * MON-FRI", Timezone: "Europe/Berlin", Exclude: exclude}
			for b.Loop() {
				if _, err := job.ParseSchedule("report", p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSlotID(b *testing.B) {
	slot := job.NewSlot("report-for-customer-0001", at(b, "2026-03-28T12:00:00Z"))
	b.ReportAllocs()
	for b.Loop() {
		_ = slot.ID()
	}
}

func BenchmarkLast(b *testing.B) {
	s := parse(b, job.Plan{Schedule: "0 * * * *", Timezone: "Europe/Berlin"})
	old, now := at(b, "1970-01-01T00:00:00Z"), at(b, "2026-11-21T07:00:00Z")
	for b.Loop() {
		s.Last(old, now, 1000)
	}
}
