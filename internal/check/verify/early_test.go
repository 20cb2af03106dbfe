package verify_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/job"
)

// A slot was started two seconds before it was due. The broker's timestamps show that, even if its
// worker's clock was wrong.
func TestSlotThatStartedBeforeItsInstantIsFound(t *testing.T) {
	t.Parallel()
	at := slot(9).At
	run := func(published, started, ran time.Duration) job.Record {
		r := done(slot(9))
		r.Published = at.Add(published)
		r.Attempts[0].Started, r.Attempts[0].Finished = at.Add(started), at.Add(started+ran)
		return r
	}
	running := run(-2*time.Second, time.Millisecond, 0)
	running.State, running.Attempts[0].Finished, running.Node = job.Running, time.Time{}, "live"
	spread := run(10*time.Second, 11*time.Second, time.Second)
	spread.Due = at.Add(30 * time.Second)
	for name, tt := range map[string]struct {
		record  job.Record
		written time.Duration // after the instant; zero: not known
		early   string
	}{
		"by its worker's own word":           {run(-2*time.Second, -2*time.Second, time.Second), 0, "2s"},
		"stored before it was due":           {run(-2*time.Second, time.Millisecond, 200*time.Millisecond), -1700 * time.Millisecond, "1.9s"},
		"it ran past its instant":            {run(-2*time.Second, time.Millisecond, 10*time.Second), 8 * time.Second, "2s"},
		"it runs still":                      {running, -1990 * time.Millisecond, "1.99s"},
		"before the spread was over":         {spread, 0, "19s"},
		"published early, started in time":   {run(-2*time.Second, time.Millisecond, time.Second), 1100 * time.Millisecond, ""},
		"published in time, by a slow clock": {run(time.Millisecond, -time.Second, time.Second), 1500 * time.Millisecond, ""},
		"a record that was written later":    {run(-2*time.Second, time.Millisecond, time.Second), time.Minute, ""},
	} {
		f := perfect()
		f.replace(tt.record)
		if tt.written != 0 {
			f.written = map[job.Slot]time.Time{slot(9): at.Add(tt.written)}
		}
		var want []string
		if tt.early != "" {
			want = []string{"leave early report:2026-11-21T09:00:00Z it was started " + tt.early + " before it was due: a start cannot be undone"}
		}
		c := f.check()
		got := found(c)
		if !slices.Equal(got, want) {
			t.Errorf("%s: found %q, want %q", name, got, want)
		}
		if r := c.Report(); r.Early != len(want) || r.OK() != (len(want) == 0) {
			t.Errorf("%s: the report counts %d early", name, r.Early)
		}
	}
}
