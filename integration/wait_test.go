//go:build unix

package integration

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
)

// The server is killed while a command waits for a triggered run. It is back before the run ends.
func TestTriggerThatWaitsEndsWithTheOutcomeOfItsRun(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobs(`read -r payload
case "$payload" in
'"good"') while [ ! -e go ]; do sleep 0.05; done; echo did it ;;
*) echo no such file >&2; exit 65 ;;
esac`, "name: import, schedule: none")
	s.worker("w1", file).says("node is up")

	bad := s.start("bad", "job", "trigger", "import", "--key", "bad", "--payload", `"bad"`, "--wait")
	if code := bad.exit(); code != 1 || !strings.HasPrefix(bad.stdout(), "import:@bad is triggered\nimport:@bad failed") || !strings.Contains(bad.stderr(), `slot "import:@bad" failed: command "/bin/sh": exit status 65`) {
		t.Errorf("exit status %d, %q, %q", code, bad.stdout(), bad.stderr())
	}

	good := s.start("good", "job", "trigger", "import", "--key", "good", "--payload", `"good"`, "--wait", "-o", "json")
	eventually(t, "the run to start", func() bool { return len(s.slots("--job", "import", "--state", "running")) == 1 })
	s.restartServer((*process).kill)
	later := s.start("later", "slot", "wait", "import:@good")
	s.write("go", "")
	if code := good.exit(); code != 0 {
		t.Fatalf("exit status %d: %s", code, good.stderr())
	}
	lines := strings.Split(strings.TrimSpace(good.stdout()), "\n")
	var ended struct{ ID, State, Output string }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &ended); err != nil || len(lines) != 2 || ended.State != "succeeded" || ended.Output != "did it\n" {
		t.Errorf("%v: %q", err, good.stdout())
	}
	if code := later.exit(); code != 0 || !strings.HasPrefix(later.stdout(), "import:@good succeeded") {
		t.Errorf("exit status %d, %q, %q", code, later.stdout(), later.stderr())
	}
	// A second command with the same key finds the outcome. It neither waits nor starts a run.
	again := s.command(0, "job", "trigger", "import", "--key", "good", "--wait")
	if !strings.Contains(again.stdout(), "was already triggered, state succeeded") {
		t.Errorf("the second trigger printed %q", again.stdout())
	}
}

// watch shows the output of a slot while it runs. A short slot may end before watch asks its worker; then
// watch shows the output of its record.
func TestWatchFollowsTheOutputOfAJobsSlots(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobs(`echo "first of $CRONCE_SLOT_ID"
read -r payload
[ "$payload" = '"short"' ] && exit 0
while [ ! -e go ]; do sleep 0.05; done
printf second`, "name: import, schedule: none")
	s.worker("w1", file).says("node is up")
	w := s.start("watch", "watch", "--job", "import", "--follow-output")
	w.says("watching")
	shows := func(text string) {
		t.Helper()
		eventually(t, "watch to show "+text, func() bool { return strings.Contains(w.stdout(), text) })
	}
	s.command(0, "job", "trigger", "import", "--key", "long")
	shows("import:@long | first of import:@long\n")
	s.command(0, "job", "trigger", "import", "--key", "short", "--payload", `"short"`)
	s.write("go", "")
	shows("import:@long | second\n")
	shows("succeeded  import:@long")
	shows("import:@short | first of import:@short\n")
	w.signal(syscall.SIGINT)
	if code := w.exit(); code != 0 || strings.Count(w.stdout(), "| ") != 3 {
		t.Errorf("exit status %d, %q", code, w.stdout())
	}
	refusal{status: 2, says: []string{"--follow-output needs --job"}}.check(t, s.start("no job", "watch", "--follow-output"))
}
