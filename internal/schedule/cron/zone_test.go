package cron

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/schedule/tzdata"
)

// The search for slots relies on this: the offset is constant within a span and changes at its end,
// and the next span ends later. The bounds that package time returns are wrong on the last day of
// some leap years.
func TestSpansHaveOneOffsetAndGoOn(t *testing.T) {
	t.Parallel()
	names := tzdata.Names()
	check := func(t interface{ Fatalf(string, ...any) }, name string, u int64, inside ...int64) {
		loc, err := tzdata.Load(name)
		if err != nil {
			t.Fatalf("%v", err)
		}
		s := spanFrom(loc, u)
		if s.end <= u || s.end <= LastInstant && s.after != offsetAt(loc, s.end) {
			t.Fatalf("%s at %v: %+v", name, time.Unix(u, 0).UTC(), s)
		}
		for _, v := range append(inside, u, u+1, s.end-1) {
			if v = min(max(v, u), s.end-1); offsetAt(loc, v) != s.offset {
				t.Fatalf("%s at %v: %+v, but another offset at %v", name, time.Unix(u, 0).UTC(), s, time.Unix(v, 0).UTC())
			}
		}
	}
	for _, name := range names { // the days on which ZoneBounds is wrong, and the days around them
		for year := 1996; year <= 2096; year += 4 {
			for hour := -48; hour <= 72; hour += 12 {
				check(t, name, time.Date(year, 12, 31, hour, 30, 0, 0, time.UTC).Unix())
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.Int64Range(-5e9, 2e10).Draw(t, "u")
		ahead := rapid.SliceOfN(rapid.Int64Range(0, 400*daySeconds), 1, 20).Draw(t, "ahead")
		for i := range ahead {
			ahead[i] += u
		}
		check(t, rapid.SampledFrom(names).Draw(t, "zone"), u, ahead...)
	})
}
