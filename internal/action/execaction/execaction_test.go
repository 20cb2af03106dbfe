//go:build linux || darwin

package execaction_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/action/execaction"
	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// TestMain makes the test binary its own guard process.
func TestMain(m *testing.M) {
	if handled, code := guard.Dispatch(os.Args[1:]); handled {
		os.Exit(code)
	}
	// Under the race detector a process sleeps for a second when it exits.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// instant of the slot that the tests run.
var instant = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func newRun(output io.Writer) job.Run {
	return job.Run{
		Slot: job.NewSlot("report", instant), Attempt: 2, Fence: 41, Due: instant,
		Node: "host-1-x-y", Queue: "default", Namespace: "cronce", Output: output,
	}
}

func newHandler(t *testing.T, argv ...string) job.Handler {
	t.Helper()
	return newPassing(t, nil, argv...)
}

func newPassing(t *testing.T, pass []string, argv ...string) job.Handler {
	t.Helper()
	g := guard.New(guard.Config{})
	t.Cleanup(g.Close)
	g.Renew(boot.Now() + time.Hour)
	handler, err := execaction.New(spec.Exec{Args: argv, PassEnv: pass}, g, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func TestTheExitStatusDecides(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script, message string
		permanent       bool
	}{
		{script: "exit 0"},
		{script: "exit 1", message: `command "sh": exit status 1`},
		{script: "exit 65", message: `command "sh": exit status 65`, permanent: true},
		{script: "exit 75", message: `command "sh": exit status 75`},
		{script: "kill -TERM $$", message: `command "sh": killed by signal terminated`},
	} {
		err := newHandler(t, "sh", "-c", c.script)(t.Context(), newRun(io.Discard))
		if message := errorText(err); message != c.message || job.IsPermanent(err) != c.permanent {
			t.Errorf("%s: got %q, permanent %t, want %q, permanent %t", c.script, message, job.IsPermanent(err), c.message, c.permanent)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The exit status of a command that the guard ended says nothing about its input.
func TestExit65AfterTheContextHasEndedIsNotPermanent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	ready := writerFunc(func() { cancel(job.ErrTimeout) })
	err := newHandler(t, "sh", "-c", "trap 'exit 65' TERM; echo ready; while :; do sleep 0.01; done")(ctx, newRun(ready))
	if job.IsPermanent(err) || !errors.Is(err, job.ErrTimeout) {
		t.Errorf("got %v, permanent %t", err, job.IsPermanent(err))
	}
	if want := `command "sh": timeout: exit status 65`; errorText(err) != want {
		t.Errorf("got %q, want %q", errorText(err), want)
	}
}

// writerFunc is called when something is written.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

func TestACommandThatIsNotThereIsRetriedAndNamed(t *testing.T) {
	t.Parallel()
	plain := t.TempDir() + "/plain"
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"no-such-program", "/nowhere/program", plain} {
		err := newHandler(t, name)(t.Context(), newRun(io.Discard))
		if err == nil || job.IsPermanent(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNoShellIsInvolved(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := newHandler(t, "echo", "$HOME; a  b", "*")(t.Context(), newRun(&out)); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "$HOME; a  b *\n" {
		t.Errorf("got %q", got)
	}
}

func TestThePayloadIsTheStandardInput(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	run := newRun(&out)
	run.Payload = json.RawMessage(`{"format":"` + strings.Repeat("x", job.MaxPayload) + `"}`)
	if err := newHandler(t, "cat")(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if out.String() != string(run.Payload) {
		t.Errorf("%d bytes in, %d bytes out, or not the same", len(run.Payload), out.Len())
	}
}

// Not parallel: it changes the environment.
func TestTheEnvironmentDescribesTheSlotAndNoOther(t *testing.T) {
	t.Setenv("CRONCE_SLOT", "of a slot whose command this worker is")
	t.Setenv("CRONCE_SERVER", "nats://127.0.0.1:4222")
	about := func(run job.Run) []string {
		var out bytes.Buffer
		run.Output = &out
		if err := newHandler(t, "env")(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		var found []string
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "CRONCE_") && !strings.HasPrefix(line, "CRONCE_TEST_") {
				found = append(found, strings.TrimSuffix(line, "\n"))
			}
		}
		slices.Sort(found)
		return found
	}

	want := []string{
		"CRONCE_ATTEMPT=2", "CRONCE_FENCE=41", "CRONCE_JOB=report", "CRONCE_NAMESPACE=cronce", "CRONCE_NODE=host-1-x-y",
		"CRONCE_QUEUE=default", "CRONCE_SERVER=nats://127.0.0.1:4222",
		"CRONCE_SLOT=2026-11-21T07:00:00Z", "CRONCE_SLOT_ID=report:2026-11-21T07:00:00Z",
	}
	if got := about(newRun(nil)); !slices.Equal(got, want) {
		t.Errorf("planned slot:\n got %q\nwant %q", got, want)
	}

	triggered := newRun(nil)
	triggered.Slot = job.Slot{Job: "report", Token: "now"}
	want = append(slices.Delete(want, 7, 9), "CRONCE_SLOT_ID=report:@now")
	if got := about(triggered); !slices.Equal(got, want) {
		t.Errorf("triggered run:\n got %q\nwant %q", got, want)
	}
}

// Not parallel: it changes the environment.
func TestCommandGetsNoLoginOfTheWorkerUnlessItIsAskedFor(t *testing.T) {
	secrets := []string{
		"CRONCE_PASSWORD", "CRONCE_TOKEN", "CRONCE_CREDS", "CRONCE_NKEY", "CRONCE_USER", "CRONCE_TLSCERT", "CRONCE_TLSKEY",
		"CRONCE_ALERT_TOKEN", "NATS_URL", "NATS_CREDS", "NATS_PASSWORD", "NATS_TOKEN",
	}
	for _, name := range secrets {
		t.Setenv(name, "secret")
	}
	t.Setenv("CRONCE_SERVER", "nats://me:secret@127.0.0.1:4222")
	t.Setenv("REPORT_TOKEN", "of the command's own")
	names := func(pass ...string) (found []string) {
		var out bytes.Buffer
		run := newRun(&out)
		if err := newPassing(t, pass, "env")(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			name, _, _ := strings.Cut(line, "=")
			if slices.Contains(secrets, name) || name == "CRONCE_SERVER" || name == "REPORT_TOKEN" {
				found = append(found, name)
			}
		}
		slices.Sort(found)
		return found
	}
	if got := names(); !slices.Equal(got, []string{"REPORT_TOKEN"}) {
		t.Errorf("not asked for: got %v", got)
	}
	if got := names("NATS_URL", "CRONCE_PASSWORD"); !slices.Equal(got, []string{"CRONCE_PASSWORD", "NATS_URL", "REPORT_TOKEN"}) {
		t.Errorf("asked for: got %v", got)
	}
}

func TestACommandWithoutAProgramIsRefused(t *testing.T) {
	t.Parallel()
	for _, argv := range [][]string{nil, {""}} {
		if _, err := execaction.New(spec.Exec{Args: argv}, guard.New(guard.Config{}), os.Getenv); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%q: got %v", argv, err)
		}
	}
}
