//go:build long && unix

package integration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// version writes a job file under another name than jobs.yaml, so that members of a fleet have different versions.
func (s *site) version(name string, jobs ...string) string {
	s.t.Helper()
	s.jobs(`echo "$CRONCE_JOB $CRONCE_NODE" >>touched`, jobs...)
	return s.write(name, strings.Join(s.lines("jobs.yaml"), "\n")+"\n")
}

// oldJob and newJob run each second.
const (
	oldJob = `name: tick, schedule: "* * * * * *"`
	newJob = `name: tock, schedule: "* * * * * *"`
)

// A worker whose file lacks a job leaves its slots to workers whose files have it.
func TestWorkersOfAnOlderVersionLeaveNewJobsToTheNewer(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	older, newer := s.version("older.yaml", oldJob), s.version("newer.yaml", oldJob, newJob)
	for _, name := range []string{"old1", "old2", "old3"} {
		s.worker(name, older, "--concurrency", "2", "--lease", lease.String())
	}
	eventually(t, "tick to run", func() bool { return count(s.touched(), "tick ") > 0 })
	s.worker("new", newer)
	eventually(t, "tock to run eight times", func() bool { return count(s.touched(), "tock ") >= 8 })
	if others := count(s.touched(), "tock old"); others > 0 {
		t.Errorf("tock ran %d times on workers that do not have the job", others)
	}
	began := len(s.touched())
	eventually(t, "tick to go on", func() bool { return count(s.touched()[began:], "tick ") >= 3 })
}

// Two members of a fleet have different versions of a file. The edit of the newer one stays, even if a member with the
// older file starts again.
func TestOlderVersionThatRestartsRevertsNothing(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	v1 := s.version("v1.yaml", `name: tick, schedule: "* * * * * *", payload: one`)
	v2 := s.version("v2.yaml", `name: tick, schedule: "*/2 * * * * *", payload: two`)
	defined := func() (payload string, past int) {
		t.Helper()
		e, err := s.bucket("jobs").Get(t.Context(), "tick")
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Job  struct{ Payload string }
			Past []json.RawMessage
		}
		if err := json.Unmarshal(e.Value(), &d); err != nil {
			t.Fatal(err)
		}
		return d.Job.Payload, len(d.Past)
	}
	s.worker("a", v1, "--lease", lease.String())
	b := s.worker("b", v1)
	eventually(t, "version 1 to run", func() bool { return len(s.touched()) > 2 })
	s.worker("c", v2).says("job definition replaced")
	for range 2 { // a crash loop
		b.kill()
		b = s.worker("b", v1)
		b.says("this definition was replaced by a later edit")
	}
	if payload, past := defined(); payload != "two" || past != 1 {
		t.Errorf("payload %q with %d past plans, want the second version's and 1", payload, past)
	}
	from := time.Now().UTC().Truncate(time.Second).Add(time.Second)
	until := from.Add(6 * time.Second)
	s.ends(slotID("tick", from.Truncate(2*time.Second).Add(6*time.Second)), "succeeded")
	for _, row := range s.slots("--job", "tick") {
		if row.Slot.After(from) && row.Slot.Before(until) && (row.Slot.Second()%2 != 0 || row.State != "succeeded") {
			t.Errorf("%s is %s", row.ID, row.State)
		}
	}
}
