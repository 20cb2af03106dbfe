package preview_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/web/pages/preview"
	"github.com/cronce-io/cronce/job"
)

var from = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func newPreview(t *testing.T, p job.Plan) *preview.Preview {
	t.Helper()
	v, err := preview.New("report", p, from)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// text describes a change.
func text(c preview.Change, zone *time.Location) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s-%s %s>%s planned %v+%d same %t:", c.At.Format("2006-01-02T15:04Z07:00"), c.Setting, c.From, c.To, c.Before, c.After, c.Planned, c.More, c.Same)
	for _, one := range c.Choices {
		fmt.Fprintf(&b, " %s", one.Value)
		if one.Chosen {
			b.WriteString("*")
		}
		var slots []string
		for _, at := range one.Slots {
			slots = append(slots, at.In(zone).Format("15:04 MST"))
		}
		fmt.Fprintf(&b, "=%s+%d", strings.Join(slots, ","), one.More)
	}
	return b.String()
}

func TestBothClockChangesOfTheYearAreSpelledOut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		plan job.Plan
		want []string
	}{
		{job.Plan{Schedule: "30 2 * * *", Timezone: "Europe/Berlin"}, []string{
			"2027-03-28T01:00Z dst_gap 02:00-03:00 CET>CEST planned [02:30]+0 same false: after*=03:00 CEST+0 skip=+0",
			"2027-10-31T01:00Z dst_overlap 02:00-03:00 CEST>CET planned [02:30]+0 same false: first*=02:30 CEST+0 second=02:30 CET+0 both=02:30 CEST,02:30 CET+0",
		}},
		{job.Plan{Schedule: "30 2 * * *", Timezone: "Europe/Berlin", DSTGap: job.GapSkip, DSTOverlap: job.RepeatBoth}, []string{
			"2027-03-28T01:00Z dst_gap 02:00-03:00 CET>CEST planned [02:30]+0 same false: after=03:00 CEST+0 skip*=+0",
			"2027-10-31T01:00Z dst_overlap 02:00-03:00 CEST>CET planned [02:30]+0 same false: first=02:30 CEST+0 second=02:30 CET+0 both*=02:30 CEST,02:30 CET+0",
		}},
		{job.Plan{Schedule: "0 7 * * *", Timezone: "America/New_York"}, []string{
			"2027-03-14T07:00Z dst_gap 02:00-03:00 EST>EDT planned []+0 same true: after*=+0 skip=+0",
			"2027-11-07T06:00Z dst_overlap 01:00-02:00 EDT>EST planned []+0 same true: first*=+0 second=+0 both=+0",
		}},
		// The hour is a star: the clocks do not matter.
		{job.Plan{Schedule: "*/30 * * * *", Timezone: "Europe/Berlin"}, []string{
			"2027-03-28T01:00Z dst_gap 02:00-03:00 CET>CEST planned [02:00 02:30]+0 same true: after*=03:00 CEST+0 skip=03:00 CEST+0",
			"2027-10-31T01:00Z dst_overlap 02:00-03:00 CEST>CET planned [02:00 02:30]+0 same true: first*=02:00 CEST,02:30 CEST,02:00 CET,02:30 CET+0 second=02:00 CEST,02:30 CEST,02:00 CET,02:30 CET+0 both=02:00 CEST,02:30 CEST,02:00 CET,02:30 CET+0",
		}},
		// Half an hour, in the south.
		{job.Plan{Schedule: "15 2 * * *", Timezone: "Australia/Lord_Howe"}, []string{
			"2027-04-03T15:00Z dst_overlap 01:30-02:00 +11>+1030 planned []+0 same true: first*=+0 second=+0 both=+0",
			"2027-10-02T15:30Z dst_gap 02:00-02:30 +1030>+11 planned [02:15]+0 same false: after*=02:30 +11+0 skip=+0",
		}},
		{job.Plan{Schedule: "30 2 * * *", Timezone: "Asia/Tokyo"}, nil},
		{job.Plan{Schedule: "30 2 * * *"}, nil},
		{job.Plan{Schedule: "none"}, nil},
	} {
		v := newPreview(t, tc.plan)
		var got []string
		for _, c := range v.Changes {
			c.At = c.At.UTC()
			got = append(got, text(c, v.Zone))
		}
		if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
			t.Errorf("%s in %s:\n%s\nwant\n%s", tc.plan.Schedule, tc.plan.Timezone, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}

func TestCalendarCountsTheSlotsOfEachDay(t *testing.T) {
	t.Parallel()
	v := newPreview(t, job.Plan{Schedule: "0 7,19 * * MON-FRI", Timezone: "Europe/Berlin"})
	if v.Words != "Monday to Friday at 07:00 and 19:00" || len(v.Coming) != 12 || v.Never || len(v.Months()) != 3 {
		t.Errorf("%+v", v)
	}
	var days []string
	for _, week := range v.Months()[0].Weeks {
		for _, d := range week {
			days = append(days, fmt.Sprintf("%d:%d", d.Number, d.Slots))
		}
	}
	const want = "0:0 0:0 0:0 0:0 0:0 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0 8:0 9:0 10:0 11:0 12:0 13:0 14:0 15:0 " +
		"16:0 17:0 18:0 19:0 20:0 21:0 22:0 23:2 24:2 25:2 26:2 27:2 28:0 29:0 30:2 0:0 0:0 0:0 0:0 0:0 0:0"
	if got := strings.Join(days, " "); got != want {
		t.Errorf("November: %s\nwant %s", got, want)
	}
	if d := v.Months()[0].Weeks[4][0]; d.Past || len(d.Times) != 2 || d.Times[0].Format(time.RFC3339) != "2026-11-23T07:00:00+01:00" || !v.Months()[0].Weeks[2][0].Past {
		t.Errorf("%+v", d)
	}
	dense := newPreview(t, job.Plan{Schedule: "* * * * * *"})
	if d := dense.Months()[1].Weeks[1][0]; d.Slots != 1440 || !d.More || len(d.Times) != 4 {
		t.Errorf("%+v", d)
	}
}

// ZoneBounds is wrong on the last day of some leap years: a search that trusts it never ends.
func TestLeapYearHasItsClockChanges(t *testing.T) {
	t.Parallel()
	for _, begin := range []time.Time{time.Date(2028, 2, 29, 1, 5, 0, 0, time.UTC), time.Date(2028, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(2028, 12, 31, 23, 0, 0, 0, time.UTC)} {
		v, err := preview.New("report", job.Plan{Schedule: "30 2 * * *", Timezone: "Europe/Berlin"}, begin)
		if err != nil {
			t.Fatal(err)
		}
		if len(v.Changes) != 2 {
			t.Errorf("the year from %v on has %d changes: %+v", begin, len(v.Changes), v.Changes)
		}
	}
}

// The clocks of Cairo and of Santiago skip midnight.
func TestDayWithoutMidnightHasItsSlots(t *testing.T) {
	t.Parallel()
	v, err := preview.New("report", job.Plan{Schedule: "0 * * * *", Timezone: "America/Santiago"}, time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	slots := map[int]int{}
	for _, week := range v.Months()[0].Weeks {
		for _, d := range week {
			slots[d.Number] = d.Slots
			if d.Changed != (d.Number == 6) {
				t.Errorf("the clocks change on %d: %v", d.Number, d.Changed)
			}
		}
	}
	if slots[5] != 24 || slots[6] != 23 || slots[7] != 24 {
		t.Errorf("slots of 5, 6 and 7 September: %d, %d, %d", slots[5], slots[6], slots[7])
	}
}

func TestPreviewSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, p := range []job.Plan{{Schedule: "61 * * * *"}, {Schedule: "0 7 * * *", Timezone: "Mars/Olympus"}, {Schedule: "0 0 30 2 *"}, {Schedule: ""}, {Schedule: "0 7 * * *", DSTGap: "x"}} {
		if _, err := preview.New("report", p, from); err == nil {
			t.Errorf("%+v has a preview", p)
		}
	}
	if v := newPreview(t, job.Plan{Schedule: "@at 2020-01-01T00:00:00Z"}); !v.Never {
		t.Errorf("%+v", v)
	}
}
