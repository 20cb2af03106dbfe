package fleet

import (
	"testing"

	"github.com/cronce-io/cronce/client"
)

func TestHistogramSaysThatItIsNotCumulative(t *testing.T) {
	t.Parallel()
	got := bars([]client.LateBucket{{UpTo: 10, Slots: 3}, {UpTo: 250}, {UpTo: 1000, Slots: 24}, {Slots: 1}})
	if want := "3 in 0 to 10ms, 24 in 250ms to 1s, 1 over 1s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
