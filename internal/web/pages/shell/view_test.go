package shell

import (
	"net/url"
	"testing"
	"time"
)

// A time.Duration holds 292 years.
func TestRelativeSaysHowFarATimeOfAnyCenturyIs(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for year, want := range map[int]string{1: "739702 d ago", 2799: "in 282245 d", 2027: "in 278 d"} {
		if got := Relative(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), now); got != want {
			t.Errorf("the year %d is %q, want %q", year, got, want)
		}
	}
}

// The page of health finds a check by its range. With another key for each request, it would begin another check
// for each.
func TestTimesOfAFormThatAreEqualAreOneKey(t *testing.T) {
	t.Parallel()
	keys := map[time.Time]bool{}
	for _, text := range []string{"2026-11-21T07:00:00+05:30", "2026-11-21T07:00:00+05:30", "2026-11-21T01:30:00Z", "2026-11-21 01:30"} {
		keys[newForm(url.Values{"from": {text}}).Time("from", time.UTC)] = true
	}
	if len(keys) != 1 {
		t.Errorf("keys %v, want one", keys)
	}
}
