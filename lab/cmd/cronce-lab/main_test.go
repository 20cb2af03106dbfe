package main

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/cmd/cronce/clitest"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

func TestMain(m *testing.M) {
	natstest.WaitMore(8)
	goleak.VerifyTestMain(m)
}

var update = flag.Bool("update", false, "rewrite the help texts and the page of the commands")

// cli is a command line under test, in an environment of its own.
type cli struct{ env map[string]string }

// result is how a command line ended.
type result struct {
	code           int
	stdout, stderr string
}

func (c cli) app(stdout, stderr io.Writer) *base.App {
	return &base.App{
		Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr,
		Getenv: func(name string) string { return c.env[name] }, Now: time.Now,
	}
}

func (c cli) run(t *testing.T, args ...string) result {
	t.Helper()
	return c.runContext(t.Context(), args...)
}

func (c cli) runContext(ctx context.Context, args ...string) result {
	var stdout strings.Builder
	var stderr clitest.Screen
	code := execute(ctx, c.app(&stdout, &stderr), args)
	return result{code, stdout.String(), stderr.String()}
}

// oneError fails unless the command ended with code and one line that says all of parts.
func (r result) oneError(t *testing.T, code int, parts ...string) {
	t.Helper()
	clitest.OneError(t, "cronce-lab", r.stdout, r.stderr, parts...)
	if r.code != code {
		t.Errorf("exit status %d, want %d", r.code, code)
	}
}

// Every command has a help text, which equals its golden file.
func TestHelp(t *testing.T) {
	t.Parallel()
	clitest.Each(newRootCommand(&base.App{}), func(path []string) {
		r := cli{}.run(t, append(path[1:], "--help")...)
		if r.code != base.ExitDone || r.stderr != "" {
			t.Fatalf("%v --help: %+v", path, r)
		}
		compare(t, filepath.Join("testdata", "help", strings.Join(path, "_")+".txt"), r.stdout)
	})
}

const referencePage = "../../../docs/lab.md"

// The page of all commands is what the commands say of themselves.
func TestTheCommandReferenceIsWhatTheHelpSays(t *testing.T) {
	t.Parallel()
	const intro = "# Commands of cronce-lab\n\nCronce-lab is a program of its own, in a module of its own. [Install it from a clone](install.md#cronce-lab). This page is made from what its commands say of themselves (`cronce-lab COMMAND --help`): after a change, `go test -C lab ./cmd/cronce-lab -update`.\n\n"
	compare(t, referencePage, intro+clitest.Reference(newRootCommand(&base.App{})))
}

func TestCommandsInHelpTextsExist(t *testing.T) {
	t.Parallel()
	clitest.CheckHelp(t, newRootCommand, 10)
}

func TestCommandsNamedOnPagesExist(t *testing.T) {
	t.Parallel()
	clitest.CheckPages(t, newRootCommand, "../../..", 8)
}

// compare compares got with a file, which -update rewrites.
func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got != string(filetest.Read(t, path)) {
		t.Errorf("%s differs; got:\n%s\nAfter a change: go test -C lab ./cmd/cronce-lab -update", path, got)
	}
}
