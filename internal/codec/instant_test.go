package codec

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// An instant that package time reads and the expression refuses is refused wherever it stands.
func TestInstantsAreCheckedByTheExpressionUnlessTheyArePlain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		hour := rapid.SampledFrom([]string{"7", "07", "23"}).Draw(t, "hour")
		fraction := rapid.StringMatching(`([.,][0-9]{1,11})?`).Draw(t, "fraction")
		zone := rapid.SampledFrom([]string{"Z", "+01:00", "-24:00", "+24:00", "+00:60", "+23:59"}).Draw(t, "zone")
		instant := "2026-11-26T" + hour + ":00:00" + fraction + zone
		_, err := time.Parse(time.RFC3339, instant)
		for _, text := range []string{instant, `{"at":"2026-11-26T07:00:00Z","To":"T1","x":"` + instant + `","Z":1}`} {
			if got := isLenient([]byte(text)); err == nil && got != lenient.MatchString(text) {
				t.Fatalf("%s: refused %t, want %t", text, got, !got)
			}
		}
	})
}
