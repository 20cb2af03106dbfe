// Package clitest checks what the help texts of a program and the pages say of its commands.
package clitest

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// Reference returns the page of all commands of a program, without its title: what they say of themselves.
func Reference(root *cobra.Command) string {
	var w bytes.Buffer
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

// Each calls do with the words of each command that the help shows.
func Each(root *cobra.Command, do func(path []string)) {
	each(root, func(cmd *cobra.Command) { do(strings.Fields(cmd.CommandPath())) })
}

func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			each(sub, do)
		}
	}
}

// CheckHelp checks that each command that a help text shows is one of the program, with flags that it has and
// values that they take. At least so many commands must be shown.
func CheckHelp(t *testing.T, newRoot func(*base.App) *cobra.Command, least int) {
	t.Helper()
	root := newRoot(&base.App{})
	shows := regexp.MustCompile(`(?m)^  (?:\w+=\S+ )*(?:.*\| )?(` + root.Name() + ` [^|<>\n#]+)`)
	shown := 0
	each(root, func(cmd *cobra.Command) {
		for _, m := range shows.FindAllStringSubmatch(cmd.Long+"\n"+cmd.Example, -1) {
			shown++
			words := shellWords(strings.TrimSpace(m[1]))[1:]
			a := &base.App{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}
			found, rest, err := newRoot(a).Find(words)
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
	if shown < least {
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

// CheckPages checks that each command of the program that a page below dir names in a sentence exists, with flags that
// it has. Values may be placeholders. At least so many commands must be named.
func CheckPages(t *testing.T, newRoot func(*base.App) *cobra.Command, dir string, least int) {
	t.Helper()
	inline := regexp.MustCompile("`(" + newRoot(&base.App{}).Name() + " [^`\n]+)`")
	named := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range inline.FindAllStringSubmatch(string(text), -1) {
			named++
			found, rest, ferr := newRoot(&base.App{}).Find(shellWords(m[1])[1:])
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
	if err != nil || named < least {
		t.Errorf("%d commands, %v", named, err)
	}
}

// OneError fails unless a command printed nothing but one line of an error, which says all of parts.
func OneError(t *testing.T, program, stdout, stderr string, parts ...string) {
	t.Helper()
	line, ok := strings.CutSuffix(stderr, "\n")
	if !ok || strings.Contains(line, "\n") || !strings.HasPrefix(line, program+": ") {
		t.Errorf("stderr is not one line that begins with the program's name:\n%s", stderr)
	}
	for _, part := range parts {
		if !strings.Contains(line, part) {
			t.Errorf("stderr %q does not say %q", line, part)
		}
	}
	if stdout != "" {
		t.Errorf("stdout is not empty: %q", stdout)
	}
}

// Screen is a stderr that is safe for concurrent use, like a real one: a connection may still log
// while the command prints its error.
type Screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *Screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
