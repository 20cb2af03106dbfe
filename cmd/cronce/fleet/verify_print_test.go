package fleet

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/check/verify"
)

func TestHistogramSaysThatItIsNotCumulative(t *testing.T) {
	t.Parallel()
	got := bars([]verify.Bucket{{Up: 10 * time.Millisecond, Slots: 3}, {Up: 250 * time.Millisecond}, {Up: time.Second, Slots: 24}, {Slots: 1}})
	if want := "3 in 0 to 10ms, 24 in 250ms to 1s, 1 over 1s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
