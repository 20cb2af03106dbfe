//go:build long

package migrate

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Each question takes systemd a tenth of a second, so there are not very many.
func TestATimersJobsHaveTheSlotsAtWhichSystemdStartsIt(t *testing.T) {
	t.Parallel()
	needCommand(t, "systemd-analyze")
	cases := rapid.Custom(drawCalendarCase)
	compared := 0
	for seed := range 60 {
		c := cases.Example(seed)
		to := c.from.AddDate(0, 0, 10)
		r := systemdOf("OnCalendar="+c.expression, "ExecStart=/bin/true")
		if len(r.Jobs) != 1 {
			t.Fatalf("%s: %+v", c.expression, r)
		}
		want, known := calendarRuns(t, c.expression, c.from, to)
		if !known {
			continue
		}
		compared++
		got := slotsOf(t, r.Jobs[0].Job, c.from, to)
		if len(want) == mostRuns {
			got = got[:min(len(got), len(want))]
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("%s: the job %+v %s", c.expression, r.Jobs[0].Job, differ(got, want))
		}
	}
	if compared < 30 {
		t.Errorf("systemd answered for %d expressions", compared)
	}
}
