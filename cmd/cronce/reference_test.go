package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/filetest"
)

const referencePage = "../../docs/cli.md"

// The page of all commands is what the commands say of themselves.
func TestTheCommandReferenceIsWhatTheHelpSays(t *testing.T) {
	t.Parallel()
	got := commandReference(newRootCommand(&base.App{}))
	if *update {
		if err := os.WriteFile(referencePage, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got != string(filetest.Read(t, referencePage)) {
		t.Errorf("%s is not what the commands say: go test ./cmd/cronce -update", referencePage)
	}
}

func commandReference(root *cobra.Command) string {
	var w bytes.Buffer
	fmt.Fprint(&w, "# Commands\n\nThis page is made from what the commands say of themselves (`cronce COMMAND --help`): after a change, `go test ./cmd/cronce -update`.\n\n")
	fmt.Fprintf(&w, "```text\n%s\n```\n\n## Flags of all commands\n\n```text\n%s```\n\nEnvironment variables in brackets are used where the flag is not given.\n", root.Long, root.PersistentFlags().FlagUsagesWrapped(100))
	each(root, func(cmd *cobra.Command) {
		if !cmd.Runnable() || cmd == root || cmd.HasAvailableSubCommands() {
			return
		}
		fmt.Fprintf(&w, "\n## %s\n\n```text\n%s\n\nUsage:\n  %s\n", cmd.CommandPath(), strings.TrimSpace(cmd.Long), cmd.UseLine())
		if cmd.Example != "" {
			fmt.Fprintf(&w, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
		}
		local := pflag.NewFlagSet("", pflag.ContinueOnError)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if root.PersistentFlags().Lookup(f.Name) == nil && f.Name != "help" {
				local.AddFlag(f)
			}
		})
		if usages := local.FlagUsagesWrapped(100); usages != "" {
			fmt.Fprintf(&w, "\nFlags:\n%s", usages)
		}
		fmt.Fprint(&w, "```\n")
	})
	return w.String()
}

func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			each(sub, do)
		}
	}
}

var inHelp = regexp.MustCompile(`(?m)^  (?:\w+=\S+ )*(?:.*\| )?(cronce [^|<>\n#]+)`)

// Every command that a help text shows is one, with flags that it has and values
// that they take.
func TestCommandsInHelpTextsExist(t *testing.T) {
	t.Parallel()
	shown := 0
	each(newRootCommand(&base.App{}), func(cmd *cobra.Command) {
		for _, m := range inHelp.FindAllStringSubmatch(cmd.Long+"\n"+cmd.Example, -1) {
			shown++
			words := shellWords(strings.TrimSpace(m[1]))[1:]
			a := &base.App{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}
			found, rest, err := newRootCommand(a).Find(words)
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil {
				err = found.ValidateArgs(found.Flags().Args())
			}
			if err == nil && found.HasAvailableSubCommands() {
				err = fmt.Errorf("%q is no command", found.CommandPath())
			}
			if err != nil {
				t.Errorf("%s: %s: %v", cmd.CommandPath(), m[1], err)
			}
		}
	})
	if shown < 30 {
		t.Errorf("only %d commands were found", shown)
	}
}

var shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)

func shellWords(line string) []string {
	words := shellWord.FindAllString(line, -1)
	for i, w := range words {
		words[i] = strings.Trim(w, `'"`)
	}
	return words
}

var inline = regexp.MustCompile("`(cronce [^`\n]+)`")

// So is every command that a page names in a sentence: with a command and flags
// that exist. Values may be placeholders.
func TestCommandsNamedOnPagesExist(t *testing.T) {
	t.Parallel()
	named := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range inline.FindAllStringSubmatch(string(text), -1) {
			named++
			found, rest, ferr := newRootCommand(&base.App{}).Find(shellWords(m[1])[1:])
			for _, word := range rest {
				name, isFlag := strings.CutPrefix(word, "--")
				name, _, _ = strings.Cut(name, "=")
				if ferr == nil && isFlag && name != "help" && found.Flag(name) == nil {
					ferr = fmt.Errorf("%s has no flag --%s", found.CommandPath(), name)
				}
			}
			if ferr != nil {
				t.Errorf("%s: `%s`: %v", path, m[1], ferr)
			}
		}
		return err
	})
	if err != nil || named < 50 {
		t.Errorf("%d commands, %v", named, err)
	}
}
