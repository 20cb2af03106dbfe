package pages

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
)

func TestClockChangeIsSpelledOut(t *testing.T) {
	t.Parallel()
	berlin, err := tzdata.Load("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		from time.Time
		want string
	}{
		{time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), "On Sunday, 28 March 2027 the clock in Europe/Berlin goes forward by 1 h, from 02:00 to 03:00"},
		// ZoneBounds is wrong on the last day of some leap years.
		{time.Date(2028, 11, 30, 0, 0, 0, 0, time.UTC), "On Sunday, 25 March 2029 the clock in Europe/Berlin goes forward by 1 h, from 02:00 to 03:00"},
		{time.Date(2028, 12, 31, 12, 0, 0, 0, time.UTC), "On Sunday, 25 March 2029 the clock in Europe/Berlin goes forward by 1 h, from 02:00 to 03:00"},
		{time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC), "On Sunday, 31 October 2027 the clock in Europe/Berlin goes back by 1 h, from 03:00 to 02:00"},
	} {
		if text, _, _, _ := nextChange(tc.from, tc.from.Add(changeAhead), berlin); text != tc.want {
			t.Errorf("after %v: %q, want %q", tc.from, text, tc.want)
		}
	}
	if text, _, _, ok := nextChange(time.Now(), time.Now().Add(changeAhead), time.UTC); ok {
		t.Errorf("the clock of UTC changes: %q", text)
	}
}

// Shortly after midnight, the range still has the slots of the evening.
func TestRangeWithoutADateEndsNow(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	u := client.Upcoming{Now: time.Date(2026, 11, 2, 0, 20, 0, 0, berlin)} // a Monday
	for _, c := range []struct{ name, day, from, to, previous, next string }{
		{"day", "", "2026-11-01T01:00", "2026-11-02T01:00", "2026-11-01", "2026-11-02"},
		{"week", "", "2026-10-27T00:00", "2026-11-03T00:00", "2026-10-27", "2026-11-02"},
		{"month", "", "2026-10-05T00:00", "2026-11-09T00:00", "2026-10-05", "2026-11-02"},
		{"day", "2026-10-25", "2026-10-25T00:00", "2026-10-26T00:00", "2026-10-24", "2026-10-26"},
		{"week", "2026-10-25", "2026-10-19T00:00", "2026-10-26T00:00", "2026-10-18", "2026-10-26"},
		{"month", "2026-10-25", "2026-10-01T00:00", "2026-11-01T00:00", "2026-09-30", "2026-11-01"},
	} {
		s, err := newSpan(c.name, c.day, u, berlin)
		if err != nil {
			t.Fatal(err)
		}
		const layout = "2006-01-02T15:04"
		if from, to := s.From.Format(layout), s.To.Format(layout); from != c.from || to != c.to || s.Previous != c.previous || s.Next != c.next {
			t.Errorf("%s at %q: got %s to %s, before %s, after %s, want %+v", c.name, c.day, from, to, s.Previous, s.Next, c)
		}
	}
}
