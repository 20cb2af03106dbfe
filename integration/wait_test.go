//go:build unix

package integration

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
)

// The server is killed while a command waits for a run of a job on demand, and is back
// before the run ends.
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
	eventually(t, "the run to start", func() bool {
		rows := s.slots("--job", "import", "--state", "running")
		return len(rows) == 1
	})
	s.restartServer((*process).kill)
	later := s.start("later", "slot", "wait", "import:@good")
	if err := os.WriteFile(s.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
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
	// The key is known: the same command waits for nothing and starts nothing.
	again := s.start("again", "job", "trigger", "import", "--key", "good", "--wait")
	if code := again.exit(); code != 0 || !strings.Contains(again.stdout(), "was already triggered, state succeeded") {
		t.Errorf("exit status %d, %q", code, again.stdout())
	}
}

// The output of a slot is seen while it runs, that of a short one after its end.
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
	if p := s.start("long", "job", "trigger", "import", "--key", "long"); p.exit() != 0 {
		t.Fatal(p.stderr())
	}
	shows("import:@long | first of import:@long\n")
	if p := s.start("short", "job", "trigger", "import", "--key", "short", "--payload", `"short"`); p.exit() != 0 {
		t.Fatal(p.stderr())
	}
	if err := os.WriteFile(s.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shows("import:@long | second\n")
	shows("succeeded  import:@long")
	shows("import:@short | first of import:@short\n")
	w.signal(syscall.SIGINT)
	if code := w.exit(); code != 0 || strings.Count(w.stdout(), "| ") != 3 {
		t.Errorf("exit status %d, %q", code, w.stdout())
	}
	refusal{status: 2, says: []string{"--follow-output needs --job"}}.check(t, s.start("no job", "watch", "--follow-output"))
}
