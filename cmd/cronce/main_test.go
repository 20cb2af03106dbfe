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

	"github.com/cronce-io/cronce/cmd/cronce/clitest"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// The test binary runs itself as cronce, so that real processes can be signalled.
func TestMain(m *testing.M) {
	if os.Getenv("CRONCE_TEST_MAIN") != "" {
		main()
	}
	natstest.WaitMore(8)
	goleak.VerifyTestMain(m,
		// The goroutine that waits for signals lives as long as the process.
		goleak.IgnoreTopFunction("github.com/cronce-io/cronce/cmd/cronce/base.UntilSignal.func1"),
		// In one run of thirty, an embedded server that is shut down while it creates a stream does not
		// end the goroutine of the stream's store. That does not matter to a process that ends.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	)
}

var update = flag.Bool("update", false, "rewrite the golden files")

// cli is a command line under test, in an environment of its own.
type cli struct {
	env   map[string]string
	local string
	now   time.Time
	stdin string
}

// result is how a command line ended.
type result struct {
	code           int
	stdout, stderr string
}

// noon is when the tests of this package take place, unless they say otherwise.
var noon = time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)

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

func (c cli) app(stdout, stderr io.Writer) *base.App {
	if c.now.IsZero() {
		c.now = noon
	}
	return &base.App{
		Stdin: strings.NewReader(c.stdin), Stdout: stdout, Stderr: stderr,
		Getenv: func(name string) string { return c.env[name] },
		Now:    func() time.Time { return c.now },
		Local:  c.local,
	}
}

// golden compares got with testdata/name, which -update rewrites.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := filetest.Read(t, path)
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", path, got, want)
	}
}

// oneError fails unless the command ended with code and one line that says all
// of parts.
func (r result) oneError(t *testing.T, code int, parts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit status %d, want %d", r.code, code)
	}
	clitest.OneError(t, "cronce", r.stdout, r.stderr, parts...)
}
