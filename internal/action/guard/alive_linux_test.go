package guard_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/job"
)

// isAlive reports whether the process exists and is not a zombie. The machine's first process may
// never reap the orphans of a guard that was killed.
func isAlive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

func TestACommandInheritsNoFileButItsThree(t *testing.T) {
	t.Parallel()
	var out buffer
	c := sh("cd /proc/self/fd && echo *")
	c.Output = &out
	if err := newGuard(t, guard.Config{}).Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	// 3 is the shell's own, for reading the directory.
	if got := strings.TrimSpace(out.String()); got != "0 1 2 3" && got != "0 1 2" {
		t.Errorf("open files: %s", got)
	}
}

// The parent of the zombie has left the group, and never reaps it.
func TestAnUnreapedZombieDoesNotDelayRun(t *testing.T) {
	t.Parallel()
	setsid := needSetsid(t)
	var out buffer
	escaped := t.TempDir() + "/escaped"
	c := sh(fmt.Sprintf("(sleep 300 & exec %s sh -c 'touch %s; exec sleep 300') & echo $!; while [ ! -e %[2]s ]; do :; done", setsid, escaped))
	c.Output = &out
	g := newGuard(t, guard.Config{Grace: 50 * time.Millisecond})
	if err := g.Run(t.Context(), c); err != nil {
		t.Error(err)
	}
	parent := out.pids(t, 1)[0]
	if !isAlive(parent) {
		t.Error("the parent did not leave the group")
	}
	_ = unix.Kill(parent, unix.SIGKILL)
	eventually(t, "the guard has reaped what it adopted", func() bool { return !anyExists(parent) && children(t, g.Pid()) == "" })
}

// Not parallel: it counts this process's files.
func TestRunsLeaveNoFileOpenAndNoZombie(t *testing.T) {
	g := newGuard(t, guard.Config{})
	once := func() {
		if err := g.Run(t.Context(), sh("sleep 300 & exit 0")); err != nil {
			t.Fatal(err)
		}
		if err := g.Run(t.Context(), guard.Command{Path: "/nowhere/program"}); err == nil {
			t.Fatal("it started")
		}
	}
	once()
	here, there := openFiles(t, os.Getpid()), openFiles(t, g.Pid())
	for range 10 {
		once()
	}
	if now := openFiles(t, os.Getpid()); now != here {
		t.Errorf("the worker had %d files open, now %d", here, now)
	}
	if now := openFiles(t, g.Pid()); now != there {
		t.Errorf("the guard had %d files open, now %d", there, now)
	}
	if left := children(t, g.Pid()); left != "" {
		t.Errorf("children of the guard: %s", left)
	}
}

func openFiles(t *testing.T, pid int) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// children lists the children of all threads of the process, zombies included.
func children(t *testing.T, pid int) string {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(lists) == 0 {
		t.Fatalf("no lists of children of %d: %v", pid, err)
	}
	var all string
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		all += string(data)
	}
	return strings.TrimSpace(all)
}

// If a command exits by itself, a process that left its group goes on, but must not delay Run.
func TestAnEscapedProcessThatHoldsTheOutputDoesNotHoldRun(t *testing.T) {
	t.Parallel()
	setsid := needSetsid(t)
	var out buffer
	escaped := t.TempDir() + "/escaped"
	c := sh(fmt.Sprintf("%s sh -c 'echo $$; touch %s; exec sleep 300' <&0 & while [ ! -e %[2]s ]; do :; done", setsid, escaped))
	c.Input, c.Output = make([]byte, 1<<20), &out // more than a pipe holds
	if err := newGuard(t, guard.Config{}).Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, pid := range out.pids(t, 1) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// needSetsid returns the path of setsid. If there is none, it skips the test, or fails it where no
// test may be skipped.
func needSetsid(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("setsid")
	switch {
	case err == nil:
	case os.Getenv("CRONCE_TEST_NO_SKIP") != "":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	return path
}

// Processes that left the group, with a parent or without one, end when the guard ends the command.
func TestProcessesThatLeftTheGroupEndWithATimeout(t *testing.T) {
	t.Parallel()
	setsid := needSetsid(t)
	g := newGuard(t, guard.Config{Grace: 300 * time.Millisecond})
	ctx, cancel := context.WithCancelCause(t.Context())
	var out buffer
	// The script starts a child in a session of its own, one that ignores TERM and has a child, and
	// one whose parents have exited.
	c := sh(fmt.Sprintf(`%[1]s sh -c 'echo $$; exec sleep 300' &
%[1]s sh -c 'trap "" TERM; echo $$; sleep 300 & echo $!; wait; sleep 300' &
(%[1]s sh -c 'sh -c "echo \$\$; exec sleep 300" &' &)
wait; sleep 300`, setsid))
	c.Env = append(c.Env, "MARK=of this command")
	c.Mark = []string{"MARK=of this command"}
	c.Output = &out
	result := make(chan error, 1)
	go func() { result <- g.Run(ctx, c) }()
	pids := out.pids(t, 4)
	cancel(job.ErrTimeout)
	if err := <-result; !errors.Is(err, job.ErrTimeout) {
		t.Errorf("got %v", err)
	}
	for _, pid := range pids {
		if isAlive(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
}

// A signal to all processes of the program's name must not end the guard, which has to end the
// commands.
func TestGuardHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	g := newGuard(t, guard.Config{})
	if err := g.Run(t.Context(), sh("exit 0")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"comm", "cmdline"} {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", g.Pid(), file))
		if err != nil || !strings.HasPrefix(string(name), "slot-guard") {
			t.Errorf("%s: %q, %v", file, name, err)
		}
	}
}
