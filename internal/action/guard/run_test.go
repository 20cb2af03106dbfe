//go:build linux || darwin

package guard_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/job"
)

func TestTheExitStatusIsReported(t *testing.T) {
	t.Parallel()
	g := newGuard(t, guard.Config{})
	for _, c := range []struct{ script, want string }{
		{"exit 0", "<nil>"},
		{"exit 3", "exit status 3"},
		{"exit 127", "exit status 127"},
		{"kill -TERM $$", "killed by signal terminated"},
		{"kill -INT $$", "killed by signal interrupt"},
		{"kill -HUP $$", "killed by signal hangup"},
		{"kill -KILL $$", "killed by signal killed"},
	} {
		if got := fmt.Sprint(g.Run(t.Context(), sh(c.script))); got != c.want {
			t.Errorf("%s: got %q, want %q", c.script, got, c.want)
		}
	}
}

func TestACommandThatCannotBeStartedIsNamed(t *testing.T) {
	t.Parallel()
	g := newGuard(t, guard.Config{})
	err := g.Run(t.Context(), guard.Command{Path: "/nowhere/program", Args: []string{"program"}})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/nowhere/program") {
		t.Errorf("missing: got %v", err)
	}
	err = g.Run(t.Context(), guard.Command{Path: os.TempDir(), Args: []string{"program"}})
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a directory: got %v", err)
	}
}

func TestOutputAndErrorsGoToOneWriterInOrder(t *testing.T) {
	t.Parallel()
	var out buffer
	c := sh("echo one; echo two >&2; echo three")
	c.Output = &out
	if err := newGuard(t, guard.Config{}).Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "one\ntwo\nthree\n" {
		t.Errorf("got %q", got)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestAWriterThatFailsDoesNotStopTheCommand(t *testing.T) {
	t.Parallel()
	c := sh("head -c 1000000 /dev/zero")
	c.Output = brokenWriter{}
	if err := newGuard(t, guard.Config{}).Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func TestInputLargerThanAPipeArrivesWhole(t *testing.T) {
	t.Parallel()
	var out buffer
	c := sh("cat")
	c.Input, c.Output = []byte(strings.Repeat("0123456789abcdef", 1<<16)), &out
	if err := newGuard(t, guard.Config{}).Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if out.String() != string(c.Input) {
		t.Errorf("%d bytes in, %d bytes out, or not the same", len(c.Input), len(out.String()))
	}
}

func TestACommandNeedNotReadItsInput(t *testing.T) {
	t.Parallel()
	c := sh("exit 0")
	c.Input = make([]byte, 1<<20)
	if err := newGuard(t, guard.Config{}).Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func TestTheEnvironmentIsWhatWasGivenByteForByte(t *testing.T) {
	t.Parallel()
	var out buffer
	c := guard.Command{Path: "/usr/bin/env", Args: []string{"env"}, Env: []string{"A=1", "B.C=\xff x"}, Output: &out}
	if err := newGuard(t, guard.Config{}).Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "A=1\nB.C=\xff x\n" {
		t.Errorf("got %q", got)
	}
}

func TestWhenTheContextEndsTheWholeGroupIsGoneBeforeRunReturns(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"willing":  family,
		"stubborn": stubborn,
		"stopped":  family + " & kill -STOP $$",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, guard.Config{Grace: 200 * time.Millisecond})
			ctx, cancel := context.WithCancelCause(t.Context())
			var out buffer
			c := sh(script)
			c.Output = &out
			result := make(chan error, 1)
			go func() { result <- g.Run(ctx, c) }()
			pids := out.pids(t, 3)
			cancel(job.ErrTimeout)
			err := <-result
			if anyExists(pids...) {
				t.Errorf("one of %v is still there", pids)
			}
			var exit *guard.ExitError
			if !errors.As(err, &exit) || !errors.Is(err, job.ErrTimeout) {
				t.Fatalf("got %v, want an exit error caused by the timeout", err)
			}
			if want := map[bool]string{true: "killed", false: "terminated"}[name == "stubborn"]; exit.Signal != want {
				t.Errorf("ended by signal %q, want %q", exit.Signal, want)
			}
		})
	}
}

func TestExitingWithZeroBecauseOfTermIsNotSuccess(t *testing.T) {
	t.Parallel()
	g := newGuard(t, guard.Config{})
	ctx, cancel := context.WithCancelCause(t.Context())
	var out buffer
	c := sh("trap 'exit 0' TERM; echo $$; while :; do sleep 0.01; done")
	c.Output = &out
	result := make(chan error, 1)
	go func() { result <- g.Run(ctx, c) }()
	out.pids(t, 1)
	cancel(job.ErrStopping)
	if err := <-result; fmt.Sprint(err) != "worker is stopping: exit status 0" {
		t.Errorf("got %v", err)
	}
}

func TestWhatACommandLeavesBehindIsGoneBeforeRunReturns(t *testing.T) {
	t.Parallel()
	g := newGuard(t, guard.Config{Grace: 200 * time.Millisecond})
	for _, prelude := range []string{"", "trap '' TERM; "} {
		var out buffer
		c := sh(prelude + "sleep 300 & echo $!; exit 0")
		c.Output = &out
		if err := g.Run(t.Context(), c); err != nil {
			t.Errorf("%q: %v", prelude, err)
		}
		if pids := out.pids(t, 1); anyExists(pids...) {
			t.Errorf("%q: %v is still there", prelude, pids)
		}
	}
}

func TestNothingStartsBeforeTheFirstRenewalNorAfterTheDeadline(t *testing.T) {
	t.Parallel()
	g := guard.New(guard.Config{})
	t.Cleanup(g.Close)
	marker := t.TempDir() + "/ran"
	try := func() error { return g.Run(t.Context(), sh("touch "+marker)) }
	if err := try(); !errors.Is(err, job.ErrLeaseLost) {
		t.Errorf("before the first renewal: got %v", err)
	}
	g.Renew(boot.Now() - time.Nanosecond)
	if err := try(); !errors.Is(err, job.ErrLeaseLost) {
		t.Errorf("after the deadline: got %v", err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Fatal("the command ran")
	}
	g.Renew(boot.Now() + time.Hour)
	if err := try(); err != nil {
		t.Errorf("after a renewal: %v", err)
	}
}

func TestNothingStartsWhenTheContextHasEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(job.ErrStopping)
	marker := t.TempDir() + "/ran"
	if err := newGuard(t, guard.Config{}).Run(ctx, sh("touch "+marker)); !errors.Is(err, job.ErrStopping) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran")
	}
}

func TestACommandWhoseLeaseLapsedEndsWithThatCauseAndTheNextOneRuns(t *testing.T) {
	t.Parallel()
	g := guard.New(guard.Config{KillAfter: 100 * time.Millisecond})
	t.Cleanup(g.Close)
	g.Renew(boot.Now() + 300*time.Millisecond)
	if err := g.Run(t.Context(), sh(stubborn)); !errors.Is(err, job.ErrLeaseLost) {
		t.Errorf("got %v, want the lost lease", err)
	}
	g.Renew(boot.Now() + time.Hour)
	if err := g.Run(t.Context(), sh("exit 0")); err != nil {
		t.Errorf("after a renewal: %v", err)
	}
}

func TestACommandThatIsToBeKeptOutlivesTheDeadlineAndNotItsContext(t *testing.T) {
	t.Parallel()
	g := guard.New(guard.Config{KillAfter: 50 * time.Millisecond})
	t.Cleanup(g.Close)
	if err := g.Start(); err != nil { // which may take longer than the lease below
		t.Fatal(err)
	}
	g.Renew(boot.Now() + 2*time.Second)
	c := sh("sleep 3")
	c.Keep = true
	if err := g.Run(t.Context(), c); err != nil {
		t.Errorf("it was not kept: %v", err)
	}
	g.Renew(boot.Now() + 2*time.Second)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, job.ErrStopping)
	defer cancel()
	c = sh(stubborn)
	c.Keep = true
	if err := g.Run(ctx, c); !errors.Is(err, job.ErrStopping) {
		t.Errorf("got %v, want what its context ended with", err)
	}
}

func TestRenewalsKeepACommandAlive(t *testing.T) {
	t.Parallel()
	g := guard.New(guard.Config{})
	t.Cleanup(g.Close)
	const trust = 2 * time.Second
	g.Renew(boot.Now() + 10*time.Second) // for the start of the guard process
	result := make(chan error, 1)
	var out buffer
	c := sh("echo $$; sleep 4")
	c.Output = &out
	go func() { result <- g.Run(t.Context(), c) }()
	out.pids(t, 1)
	tick := time.NewTicker(trust / 10)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.Renew(boot.Now() + trust)
		case err := <-result:
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
}

func TestManyCommandsAtOnceKeepTheirOutcomesApart(t *testing.T) {
	t.Parallel()
	g := newGuard(t, guard.Config{})
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			var out buffer
			c := sh(fmt.Sprintf("cat; exit %d", i))
			c.Input, c.Output = []byte(fmt.Sprint(i)), &out
			err := g.Run(t.Context(), c)
			var exit *guard.ExitError
			if code := 0; errors.As(err, &exit) && exit.Code != i || err == nil && code != i || out.String() != fmt.Sprint(i) {
				t.Errorf("command %d: %v, output %q", i, err, out.String())
			}
		})
	}
	all.Wait()
}

func TestSignalsForTheWholeServiceDoNotEndTheGuard(t *testing.T) {
	t.Parallel()
	g := newGuard(t, guard.Config{})
	if err := g.Run(t.Context(), sh("exit 0")); err != nil {
		t.Fatal(err)
	}
	pid := g.Pid()
	if session, err := unix.Getsid(pid); err != nil || session != pid {
		t.Errorf("the guard %d is in session %d (%v), where a terminal's Ctrl-C and Ctrl-Z reach it", pid, session, err)
	}
	for _, signal := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTERM} {
		if err := unix.Kill(pid, signal); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Run(t.Context(), sh("exit 0")); err != nil {
		t.Error(err)
	}
	if g.Pid() != pid {
		t.Error("another guard process runs")
	}
}

func TestWhenTheGuardIsKilledItsCommandsEndAndTheNextRunHasANewOne(t *testing.T) {
	t.Parallel()
	t.Run("as the worker's user", func(t *testing.T) {
		t.Parallel()
		testGuardIsKilled(t, nil)
	})
	t.Run("as another user", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("only root can run a command as another user")
		}
		testGuardIsKilled(t, &guard.Credential{UID: 65534, GID: 65534})
	})
}

func testGuardIsKilled(t *testing.T, as *guard.Credential) {
	g := newGuard(t, guard.Config{})
	var out buffer
	c := sh(stubborn)
	c.Output, c.As, c.Dir = &out, as, "/"
	c.Mark = []string{"COMMAND=" + t.Name()}
	c.Env = append(c.Env, c.Mark...)
	result := make(chan error, 1)
	go func() { result <- g.Run(t.Context(), c) }()
	pids := out.pids(t, 3)
	killed := g.Pid()
	if err := unix.Kill(killed, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err == nil || !strings.Contains(err.Error(), "the guard process has ended: signal: killed") {
		t.Errorf("got %v", err)
	}
	for _, pid := range pids {
		if isAlive(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	if err := g.Run(t.Context(), sh("exit 0")); err != nil {
		t.Errorf("the next run: %v", err)
	}
	if g.Pid() == killed {
		t.Error("the same guard process")
	}
}

// Not parallel: it changes the environment.
func TestAProgramThatForgetsDispatchDoesNotStartGuardsForEver(t *testing.T) {
	t.Setenv("CRONCE_GUARD_PROCESS", "1")
	if err := newGuard(t, guard.Config{}).Start(); err == nil || !strings.Contains(err.Error(), "guard.Dispatch") {
		t.Errorf("got %v", err)
	}
}

func TestAGuardStartedByHandSaysWhatItIs(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"__guard"}, {"__guard", "1s", "1s"}} {
		out, err := exec.CommandContext(t.Context(), os.Args[0], args...).CombinedOutput()
		if err == nil || !strings.HasPrefix(string(out), "guard process: ") || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%q: %v, output %q", args, err, out)
		}
	}
}

func TestCloseEndsWhatRunsAndTheGuardProcess(t *testing.T) {
	t.Parallel()
	g := newGuard(t, guard.Config{})
	var out buffer
	c := sh(stubborn)
	c.Output = &out
	result := make(chan error, 1)
	go func() { result <- g.Run(t.Context(), c) }()
	pids := append(out.pids(t, 3), g.Pid())
	g.Close()
	if anyExists(pids...) {
		t.Errorf("one of %v is still there", pids)
	}
	if err := <-result; fmt.Sprint(err) != "the guard process has ended: guard is closed" {
		t.Errorf("the run: %v", err)
	}
	if err := g.Run(t.Context(), sh("exit 0")); err == nil || err.Error() != "guard is closed" {
		t.Errorf("a run after Close: %v", err)
	}
}
