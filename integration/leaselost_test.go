//go:build long && unix

package integration

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A worker does not hear from the broker for longer than its lease while it runs
// one slot of each kind: one is ended in time and run again, the other runs on and
// is recorded when the broker is back.
func TestLeaseThatIsLostEndsAHandlerOrNotAsTheJobSays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startServer("127.0.0.1:0")
	s.connect()
	wire := s.wire()
	instant := soon().UTC()
	at := fmt.Sprintf("schedule: '@at %s', retry: {attempts: 5, backoff: 100ms}", instant.Format(time.RFC3339))
	file := s.jobs(`echo "start $CRONCE_JOB $CRONCE_ATTEMPT $$" >>touched
for i in $(seq 1 80); do [ -e "go" ] && break; sleep 0.1; done
echo "end $CRONCE_JOB $CRONCE_ATTEMPT" >>touched`,
		"name: ends, "+at, "name: finishes, on_lease_lost: finish, "+at)
	worker := s.over(wire).worker("w1", file, "--lease", lease.String())
	eventually(t, "both to run", func() bool { return count(s.touched(), "start") == 2 })
	wire.silence()
	ended := pidAfter(t, s.touched(), "start ends 1 ")
	eventually(t, "the one to be ended with its lease", func() bool { return errors.Is(syscall.Kill(ended, 0), syscall.ESRCH) })
	if n := count(s.touched(), "end ends 1"); n != 0 {
		t.Error("the one ended by itself, and not with its lease")
	}
	s.write("go", "")
	eventually(t, "the other to finish", func() bool { return count(s.touched(), "end finishes 1") == 1 })
	wire.heal()
	if r := s.ends(slotID("finishes", instant), "succeeded"); r.Attempt != 1 {
		t.Errorf("the one that finished succeeded at attempt %d", r.Attempt)
	}
	if r := s.ends(slotID("ends", instant), "succeeded"); r.Attempt < 2 {
		t.Errorf("the one that was ended succeeded at attempt %d", r.Attempt)
	}
	if n := count(s.touched(), "start finishes"); n != 1 {
		t.Errorf("the one that finished was started %d times", n)
	}
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// pidAfter returns the number after prefix in the first of the lines that begins with it.
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
