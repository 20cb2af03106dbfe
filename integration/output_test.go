//go:build long && unix

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// waitsForGo writes to stdout and stderr, waits until the file go exists, and writes more. Its first attempt
// fails.
const waitsForGo = `
printf 'first \033[2J line\n'
echo "on stderr" >&2
echo >>begun
until [ -e go ]; do sleep 0.05; done
echo "attempt $CRONCE_ATTEMPT is over"
[ "$CRONCE_ATTEMPT" = 2 ]
`

func TestTailFollowsACommandToItsOutcome(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	instant := soon()
	id := slotID("work", instant)
	s.worker("w1", s.jobs(waitsForGo, "name: work, retry: {attempts: 2, backoff: 10ms}, "+at(instant)))
	eventually(t, "the command to begin", func() bool { return len(s.lines("begun")) > 0 })
	tail := s.start("tail", "slot", "tail", id)
	eventually(t, "what it has written so far", func() bool { return tail.stdout() == "first \\x1b[2J line\non stderr\n" })
	s.write("go", "")
	want := "first \\x1b[2J line\non stderr\nattempt 1 is over\nfirst \\x1b[2J line\non stderr\nattempt 2 is over\n" + id + " succeeded"
	if code := tail.exit(); code != 0 || !strings.HasPrefix(tail.stdout(), want) {
		t.Errorf("exit status %d, printed\n%s\nwant\n%s\n%s", code, tail.stdout(), want, tail.stderr())
	}
	if said := tail.stderr(); !strings.Contains(said, "the attempt failed") || !strings.Contains(said, "exit status 1") {
		t.Errorf("tail does not say why attempt 1 failed: %s", said)
	}

	show := s.command(0, "slot", "show", id)
	if !strings.Contains(show.stdout(), "output of attempt 1:\n  first \\x1b[2J line\n  on stderr\n  attempt 1 is over\n") {
		t.Errorf("slot show printed\n%s", show.stdout())
	}
}

// The record keeps the beginning and the end of a long output. tail prints both, and the outcome as JSON.
func TestTailOfASlotThatFailedHasStatusOne(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	instant := soon()
	id := slotID("work", instant)
	// The output is ten megabytes, and then what a program in Go writes when it panics.
	s.worker("w1", s.jobs(`
echo "the first line"
yes 0123456789 | head -c 10000000
printf 'panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:7 +0x25\n' >&2
exit 2
`, "name: work, retry: {attempts: 1}, "+at(instant)))
	s.ends(id, "failed")
	show := s.command(0, "slot", "show", id)
	for _, want := range []string{"the first line\n", " bytes cut) ...\n", "panic: boom\n", "/src/main.go:7 +0x25\n"} {
		if !strings.Contains(show.stdout(), want) {
			t.Errorf("%q is not shown:\n%s", want, show.stdout())
		}
	}
	tail := s.start("tail", "slot", "tail", id, "-o", "json")
	code := tail.exit()
	lines := strings.Split(strings.TrimSpace(tail.stdout()), "\n")
	var head, rest, end struct {
		Attempt int
		Node    string
		State   string
		Output  string
		Skipped int
	}
	if len(lines) != 3 || json.Unmarshal([]byte(lines[0]), &head) != nil || json.Unmarshal([]byte(lines[1]), &rest) != nil || json.Unmarshal([]byte(lines[2]), &end) != nil {
		t.Fatalf("printed %.1000q", lines)
	}
	recorded := fmt.Sprintf("%s\n... (%d bytes cut) ...\n%s", head.Output, rest.Skipped, rest.Output)
	if code != 1 || head.Attempt != 1 || head.Node == "" || rest.Attempt != 1 || recorded != end.Output || end.State != "failed" {
		t.Errorf("exit status %d, %+v", code, head)
	}
}
