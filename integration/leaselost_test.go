//go:build long && unix

package integration

import (
	"strconv"
	"strings"
	"testing"
)

// A worker that runs two slots hears nothing from the broker for longer than its lease. The action of the job
// "ends" is ended with the lease, and its slot runs again. The action of the job "finishes" goes on, and its
// outcome is recorded when the broker is back.
func TestLostLeaseEndsAnActionUnlessItsJobSaysFinish(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	wire := s.wire()
	instant := soon()
	plan := at(instant) + ", retry: {attempts: 5, backoff: 100ms}"
	file := s.jobs(`echo "start $CRONCE_JOB $CRONCE_ATTEMPT $$" >>touched
until [ -e go ]; do sleep 0.1; done
echo "end $CRONCE_JOB $CRONCE_ATTEMPT" >>touched`,
		"name: ends, "+plan, "name: finishes, on_lease_lost: finish, "+plan)
	worker := s.over(wire).worker("w1", file, "--lease", lease.String())
	eventually(t, "both to run", func() bool { return count(s.touched(), "start") == 2 })
	wire.Set(silent)
	ended := pidAfter(t, s.touched(), "start ends 1 ")
	eventually(t, "the action of the job ends to be ended with the lease", func() bool { return !alive(ended) })
	s.write("go", "")
	eventually(t, "the action of the job finishes to end by itself", func() bool { return count(s.touched(), "end finishes 1") == 1 })
	wire.Heal()
	if r := s.ends(slotID("finishes", instant), "succeeded"); r.Attempt != 1 {
		t.Errorf("%s succeeded at attempt %d, want 1", r.ID, r.Attempt)
	}
	if r := s.ends(slotID("ends", instant), "succeeded"); r.Attempt < 2 {
		t.Errorf("%s succeeded at attempt %d, want a later one than 1", r.ID, r.Attempt)
	}
	if starts, ends := count(s.touched(), "start finishes"), count(s.touched(), "end ends 1"); starts != 1 || ends != 0 {
		t.Errorf("the job finishes was started %d times, want 1; attempt 1 of the job ends came to its end %d times, want 0", starts, ends)
	}
	term(worker)
}

// pidAfter returns the number behind prefix in the first line that begins with it.
func pidAfter(t *testing.T, lines []string, prefix string) int {
	t.Helper()
	for _, line := range lines {
		if text, ok := strings.CutPrefix(line, prefix); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("no line of %q begins with %q", lines, prefix)
	return 0
}
