package guard_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/guard"
)

// isAlive reports whether the process is there and no zombie. For orphans of a
// guard that was killed, which the machine's first process may not reap.
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

// A process that leaves the group cannot be ended, but must not hold Run up.
func TestAnEscapedProcessThatHoldsTheOutputDoesNotHoldRun(t *testing.T) {
	t.Parallel()
	setsid, err := exec.LookPath("setsid")
	if err != nil {
		t.Skip(err)
	}
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
