package verify

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The histogram's quantiles are those of the sorted values, at most a sixteenth
// too large, and its buckets hold every value once.
func TestLatenessAgainstSorting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Map(rapid.Int64Range(-1e6, 1e14), func(ns int64) time.Duration { return time.Duration(ns) }), 1, 200).Draw(t, "values")
		var h histogram
		for _, d := range values {
			h.add(d)
		}
		for i := range values {
			values[i] = max(values[i], 0)
		}
		slices.Sort(values)
		l := h.lateness()
		n := len(values)
		for want, got := range map[time.Duration]time.Duration{values[(n+1)/2-1]: l.P50, values[(99*n+99)/100-1]: l.P99} {
			if got < want.Truncate(time.Microsecond) || got > want+want/16+time.Microsecond {
				t.Fatalf("quantile %v, want %v of %v", got, want, values)
			}
		}
		held := 0
		for i, b := range l.Buckets {
			held += b.Slots
			if last := i == len(l.Buckets)-1; last != (b.Up == 0) {
				t.Fatalf("bucket %d has bound %v", i, b.Up)
			}
		}
		if l.Max != values[n-1] || l.Slots != n || held != n {
			t.Fatalf("%+v of %v", l, values)
		}
	})
}
