package shell

import (
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
