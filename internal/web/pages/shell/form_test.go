package shell

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/schedule/tzdata"
)

func TestWallTimeWithoutOneInstantIsRefusedAndTheInstantsAreNamed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ typed, zone, want, wrong string }{
		{"2027-03-28 01:59:59", "Europe/Berlin", "2027-03-28T00:59:59Z", ""},
		{"2027-03-28 02:00", "Europe/Berlin", "", "the next instant is 2027-03-28T03:00:00+02:00"},
		{"2027-03-28T02:59:59", "Europe/Berlin", "", "the next instant is 2027-03-28T03:00:00+02:00"},
		{"2027-03-28 03:00", "Europe/Berlin", "2027-03-28T01:00:00Z", ""},
		{"2026-10-25 01:59:59", "Europe/Berlin", "2026-10-24T23:59:59Z", ""},
		{"2026-10-25 02:00", "Europe/Berlin", "", "want 2026-10-25T02:00:00+02:00, the first, or 2026-10-25T02:00:00+01:00, the second"},
		{"2026-10-25 03:00", "Europe/Berlin", "2026-10-25T02:00:00Z", ""},
		{"2026-10-25T02:30:00+01:00", "Europe/Berlin", "2026-10-25T01:30:00Z", ""},
		{"2026-04-05 01:45", "Australia/Lord_Howe", "", "want 2026-04-05T01:45:00+11:00, the first, or 2026-04-05T01:45:00+10:30, the second"},
		{"2026-09-06 00:30", "America/Santiago", "", "the next instant is 2026-09-06T01:00:00-03:00"},
		{"2026-09-06", "America/Santiago", "2026-09-06T04:00:00Z", ""}, // the day has no midnight
		{"2026-11-01", "America/Havana", "2026-11-01T04:00:00Z", ""},   // and this one two
		{"2011-12-30 12:00", "Pacific/Apia", "", "the next instant is 2011-12-31T00:00:00+14:00"},
		{"2026-11-21 07:00", "UTC", "2026-11-21T07:00:00Z", ""},
	} {
		loc, err := tzdata.Load(tc.zone)
		if err != nil {
			t.Fatal(err)
		}
		f := newForm(url.Values{"at": {tc.typed}})
		at := f.Time("at", loc)
		wrong := f.Error("at")
		if tc.want != "" && (at.Format(time.RFC3339) != tc.want || wrong != "") || tc.want == "" && (!at.IsZero() || !strings.Contains(wrong, tc.wrong)) {
			t.Errorf("%s in %s: %v, %q, want %s %s", tc.typed, tc.zone, at, wrong, tc.want, tc.wrong)
		}
	}
}
