//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/cmd/cronce/clitest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// A user's week in shadow: the worker of the imported file claims and records the slots of its
// jobs, and runs none of their commands, until the file says no longer that they are shadows.
func TestAShadowJobIsRecordedAndItsCommandDoesNotRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, marks := filepath.Join(dir, "jobs.yaml"), filepath.Join(dir, "marks")
	url := natstest.Run(t).ClientURL()
	write := func(shadow string) {
		t.Helper()
		text := fmt.Sprintf("version: 1\njobs:\n  - {name: tick, schedule: none, %s action: {exec: [/bin/sh, -c, 'echo $CRONCE_SLOT_ID >>%s'], user: no-such-user}}\n", shadow, marks)
		if shadow == "" {
			text = strings.Replace(text, ", user: no-such-user", "", 1)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("shadow: true,") // the user of its command is not on this machine, and need not be
	node := command(t, "run", "-f", file, "--server", url)
	log := &clitest.Screen{}
	node.Stderr = log
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	c := cli{env: map[string]string{"CRONCE_SERVER": url}}
	said := func(text string) {
		t.Helper()
		natstest.Eventually(t, "the log has "+text, func() bool { return strings.Contains(log.String(), text) })
	}
	said("shadow jobs: their slots are recorded, and their actions do not run")
	run := func(token string) {
		t.Helper()
		natstest.Eventually(t, "the run "+token+" succeeds", func() bool {
			return c.run(t, "job", "trigger", "tick", "--key", token, "--wait").code == 0 // at first the job may not be in the registry
		})
	}
	run("first")
	if text, err := os.ReadFile(marks); err == nil {
		t.Fatalf("the command of a shadow ran: %s", text)
	}
	for _, look := range []struct{ says, command string }{
		{`"shadow":true`, "slot ls -o json"},
		{"shadow, on ", "slot ls"},
		{"It was a shadow: the job's action did not run.", "slot explain tick:@first"},
		{"attempt 1 ended as a shadow, without running the action, after", "slot explain tick:@first"},
		{"the job's action did not run", "slot show tick:@first"},
		{`"shadow":true`, "slot show tick:@first -o json"},
		{"shadow, on ", "job show tick"},
		{"tick (shadow)", "check " + file},
		{`"shadow":true`, "check -o json " + file},
	} {
		if r := c.run(t, strings.Fields(look.command)...); r.code != 0 || !strings.Contains(r.stdout, look.says) {
			t.Errorf("%s: %+v, want %q", look.command, r, look.says)
		}
	}
	write("")
	send(t, node, syscall.SIGHUP)
	said("file reloaded")
	run("second")
	if text, _ := os.ReadFile(marks); string(text) != "tick:@second\n" {
		t.Errorf("the commands of these ran: %q, want that of the second only", text)
	}
	for _, command := range []string{"slot show tick:@second -o json", "check " + file} {
		if r := c.run(t, strings.Fields(command)...); strings.Contains(r.stdout, "shadow") {
			t.Errorf("%s: %+v", command, r)
		}
	}
	send(t, node, syscall.SIGTERM)
	if err := node.Wait(); err != nil {
		t.Error(err)
	}
}

// The old scheduler is played by a second fleet: its commands log their slots, and those of the
// shadows do not run.
func TestAWeekInShadowIsComparedWithTheLogOfTheOldScheduler(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	url := natstest.Run(t).ClientURL()
	start := func(namespace, shadow string) {
		t.Helper()
		file := filepath.Join(dir, namespace+".yaml")
		text := fmt.Sprintf("version: 1\njobs:\n  - {name: tick, schedule: '* * * * * *', overlap: allow, shadow: %s, action: {exec: [/bin/sh, -c, 'echo $CRONCE_SLOT tick >>%s']}}\n", shadow, log)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		node := command(t, "run", "-f", file, "--server", url, "--namespace", namespace)
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = node.Process.Signal(syscall.SIGTERM)
			if err := node.Wait(); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		})
	}
	c := cli{env: map[string]string{"CRONCE_SERVER": url, "CRONCE_NAMESPACE": "new"}}
	start("new", "true")
	ours := func() string { return c.run(t, "slot", "ls", "-o", "json", "--state", "succeeded").stdout }
	natstest.Eventually(t, "a slot in shadow", func() bool { return strings.Contains(ours(), `"shadow":true`) })
	for says, list := range map[string][]string{"succeeded, shadow": {"job", "ls"}, `"last_state":"succeeded","last_shadow":true`: {"job", "ls", "-o", "json"}} {
		natstest.Eventually(t, "the list of jobs with "+says, func() bool { return strings.Contains(c.run(t, list...).stdout, says) })
	}
	start("old", "false")
	var lines []string
	natstest.Eventually(t, "five runs of the old scheduler, which the shadow has too", func() bool {
		text, _ := os.ReadFile(log) // it is not there before the first run
		lines = strings.SplitAfter(string(text), "\n")
		lines = lines[:len(lines)-1] // what follows the last line's end
		if len(lines) < 5 {
			return false
		}
		slots := ours()
		for _, line := range lines {
			if !strings.Contains(slots, "tick:"+strings.Fields(line)[0]) {
				return false
			}
		}
		return true
	})
	slices.Sort(lines)
	first, _, _ := strings.Cut(lines[0], " ")
	last, _, _ := strings.Cut(lines[len(lines)-1], " ")
	verify := []string{"verify", "--against", "-", "--from", first, "--to", last, "-o", "json"}
	c.stdin = strings.Join(lines, "")
	if r := c.run(t, verify...); r.code != 0 || !strings.Contains(r.stdout, `"offset_ms":{"min":0,"p50":0,"max":0}`) || strings.Contains(r.stdout, "twice") {
		t.Errorf("the same runs on both sides: %+v", r)
	}
	without := strings.Fields(lines[2])[0]
	c.stdin = strings.Join(slices.Delete(lines, 2, 3), "")
	if r := c.run(t, verify...); r.code != base.ExitFound || !strings.Contains(r.stdout, `{"difference":"only_ours","job":"tick","id":"tick:`+without) {
		t.Errorf("the log without %s: %+v", without, r)
	}
}
