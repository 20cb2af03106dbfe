package main

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/job"
)

// Every command has a help text, which equals its golden file and fits a terminal.
func TestHelp(t *testing.T) {
	t.Parallel()
	root := newRootCommand(&base.App{})
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())
		r := cli{}.run(t, append(path[1:], "--help")...)
		if r.code != base.ExitDone || r.stderr != "" {
			t.Fatalf("%s --help: %+v", cmd.CommandPath(), r)
		}
		golden(t, "help/"+strings.Join(path, "_")+".txt", r.stdout)
		for line := range strings.Lines(r.stdout) {
			if n := utf8.RuneCountInString(line); n > 125 {
				t.Errorf("%s --help: a line of %d characters: %s", cmd.CommandPath(), n, line)
			}
		}
		if cmd.Short == "" || cmd.Runnable() && cmd.Long == "" && !cmd.HasSubCommands() {
			t.Errorf("%s does not explain itself", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				walk(sub)
			}
		}
	}
	walk(root)
}

func TestBareCommandHelps(t *testing.T) {
	t.Parallel()
	bare, help := cli{}.run(t), cli{}.run(t, "--help")
	if bare != help || bare.code != base.ExitDone {
		t.Errorf("cronce prints %+v, want what --help prints", bare)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	r := cli{}.run(t, "--version")
	if r.code != base.ExitDone || !strings.HasPrefix(r.stdout, "cronce ") || strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("%+v", r)
	}
}

func TestVersionNamesWhatTheProgramIsMadeOf(t *testing.T) {
	t.Parallel()
	r := cli{}.run(t, "version", "-o", "json")
	var v map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || r.code != base.ExitDone {
		t.Fatalf("%v in %+v", err, r)
	}
	want := map[string]any{"protocol": 1.0, "go": runtime.Version(), "nats_server": server.VERSION, "nats_client": nats.Version, "tzdata": tzdata.Version}
	for name, value := range want {
		if v[name] != value {
			t.Errorf("%s is %v, want %v", name, v[name], value)
		}
	}
	text := cli{}.run(t, "version").stdout
	for _, want := range []string{"cronce ", "protocol ", "nats-server  " + server.VERSION, "tzdata       " + tzdata.Version} {
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want %q in it", text, want)
		}
	}
}

// Words that users of other programs type.
func TestPluralsAndListAreUnderstood(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	f.record(t, job.Record{Slot: job.NewSlot("report", time.Now().Truncate(time.Hour)), Queue: "default", Node: "w1", Finished: time.Now()}, job.Failed)
	for other, usual := range map[string]string{
		"jobs": "job ls", "list": "job ls", "job list": "job ls", "jobs -o json": "job ls -o json", "jobs ls": "job ls", "jobs list": "job ls",
		"jobs show report": "job show report",
		"slots":            "slot ls", "slots --state failed": "slot ls --state failed", "slot list --job report": "slot ls --job report", "nodes": "node ls", "node list": "node ls", "nodes --all": "node ls --all",
	} {
		got, want := f.run(t, strings.Fields(other)...), f.run(t, strings.Fields(usual)...)
		if got.stdout != want.stdout || got.code != want.code || want.stdout == "" {
			t.Errorf("cronce %s: %+v, want what %s prints: %+v", other, got, usual, want)
		}
	}
	f.run(t, "jobs", "lsx").oneError(t, base.ExitUsage, "unknown command", "lsx")
	if help := f.ok(t, "--help"); strings.Contains(help, "\n  jobs") {
		t.Errorf("the help lists a command twice: %s", help)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := (cli{}).run(t, "completion", shell); r.code != base.ExitDone || !strings.Contains(r.stdout, "cronce") {
			t.Errorf("completion %s: exit status %d, %d bytes", shell, r.code, len(r.stdout))
		}
	}
	for args, want := range map[string]string{
		"slot l":             "ls\t",
		"slot ls --output j": "json\n",
		"slot ls --state su": "succeeded\n",
	} {
		r := cli{}.run(t, append([]string{"__complete"}, strings.Fields(args)...)...)
		if r.code != base.ExitDone || !strings.Contains(r.stdout, want) {
			t.Errorf("completing %q gives %q, want %q", args, r.stdout, want)
		}
	}
}
