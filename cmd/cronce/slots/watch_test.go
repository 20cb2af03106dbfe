package slots

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

// obeyed are control sequences of a terminal.
const obeyed = "\x1b[2J\x1b]0;owned\a\r\u009b31m\u202e"

func TestAnEventIsOneLineForAPerson(t *testing.T) {
	t.Parallel()
	e := job.Event{Kind: job.EventFailed, Time: time.Now(), Node: "web1-1" + obeyed, ID: "report:@x", Attempt: 3, Error: "exit\tstatus 1\n" + obeyed}
	for _, e := range []job.Event{e, {Kind: job.EventFenced, Node: "a", Peer: "b" + obeyed}, {Kind: "new" + obeyed, ID: obeyed}} {
		if line := eventLine(e); strings.ContainsFunc(line, printable.Hidden) || strings.ContainsAny(line, "\n\t") {
			t.Errorf("a terminal would obey %q", line)
		}
	}
	if line := eventLine(e); !strings.Contains(line, "failed     report:@x  attempt 3  web1-1") || !strings.HasSuffix(line, "exit status 1...") {
		t.Errorf("got %q", line)
	}
}
