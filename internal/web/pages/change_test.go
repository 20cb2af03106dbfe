package pages

import (
	"testing"
	"time"

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
