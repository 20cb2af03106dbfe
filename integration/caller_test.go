//go:build long && unix

package integration

import (
	"strings"
	"testing"
	"time"
)

// The login of a caller is enough for the command that waits, and for an error that names what the login
// may not do.
func TestCallersCommandTriggersAndWaitsForNamedJobsOnly(t *testing.T) {
	t.Parallel()
	callerWorks(t, newGuardedSite(t), "worker", "producer")
}

func TestAccountsLetACallerTriggerAndWait(t *testing.T) {
	t.Parallel()
	callerWorks(t, newAccountsSite(t, "setup", "producer+worker", "operator", "viewer", "caller", "--job", "report"), "producer-worker", "producer-worker")
}

func callerWorks(t *testing.T, g guarded, worker, produces string) {
	g.does("setup", "setup", "--queue", "default")
	file := g.jobs("echo made", "name: report, schedule: none", "name: other, schedule: none")
	g.does("operator", "job", "apply", "-f", file)
	w := g.as(worker).worker("w", file, "--no-produce")
	producer := g.as(produces).start("p", "run", "--no-work", "--node", "p")
	producer.says("node is up")
	w.says("node is up")
	if out := g.does("caller", "job", "trigger", "report", "--key", "k", "--wait"); !strings.Contains(out, "report:@k succeeded") {
		t.Errorf("it waits for its run: %s", out)
	}
	if out := g.does("caller", "slot", "wait", "report:@k"); !strings.Contains(out, "succeeded") {
		t.Errorf("it waits again: %s", out)
	}
	at := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339Nano)
	if out := g.does("caller", "job", "trigger", "report", "--key", "later", "--at", at, "--wait"); !strings.Contains(out, "report:@later succeeded") {
		t.Errorf("it waits for a run that it ordered for later: %s", out)
	}
	p := g.as("caller").start("wait for none", "slot", "wait", "report:@none", "--timeout", "100ms")
	if code := p.exit(); code != 1 || !strings.Contains(p.stderr(), "may not see which slots wait") {
		t.Errorf("it waits for a run that does not exist: exit status %d, %s", code, p.stderr())
	}
	for _, args := range [][]string{{"job", "trigger", "other"}, {"job", "pause", "report"}, {"slot", "ls"}, {"slot", "tail", "other:@k"}} {
		p := g.as("caller").start(strings.Join(args, " "), args...)
		if code := p.exit(); code != 1 || !strings.Contains(p.stderr(), "not permitted") {
			t.Errorf("cronce %v: exit status %d, %s%s", args, code, p.stdout(), p.stderr())
		}
	}
	for _, p := range []*process{w, producer} {
		term(p)
		g.unhindered(p)
	}
}
