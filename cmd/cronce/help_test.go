package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// Every command explains itself; its help is held against a golden file and fits
// a terminal.
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
			walk(sub)
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
