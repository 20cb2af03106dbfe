//go:build linux || darwin

package guard_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// TestMain makes the test binary its own guard process, and a worker that a test can kill (see
// startWorker).
func TestMain(m *testing.M) {
	if handled, code := guard.Dispatch(os.Args[1:]); handled {
		os.Exit(code)
	}
	if script := os.Getenv("GUARD_TEST_WORKER"); script != "" {
		os.Exit(beWorker(script))
	}
	// Under the race detector a process sleeps for a second when it exits.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	natstest.WaitMore(8)
	goleak.VerifyTestMain(m)
}

// newGuard returns a guard whose lease lasts for the test.
func newGuard(t *testing.T, config guard.Config) *guard.Guard {
	t.Helper()
	g := guard.New(config)
	t.Cleanup(g.Close)
	g.Renew(boot.Now() + time.Hour)
	return g
}

// sh is a command that runs script.
func sh(script string) guard.Command {
	return guard.Command{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ()}
}

// family is a script that prints its own process ID, a child's and a grandchild's, and does not
// exit.
const family = `echo $$; sleep 300 & echo $!; sh -c 'sleep 300 & echo $!; wait' & wait; wait`

// stubborn is a family that ignores TERM.
const stubborn = `trap '' TERM; ` + family

// buffer collects output that a test looks at while it grows.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// pids waits until n process IDs are printed. If the test fails, it kills these processes at the end.
func (b *buffer) pids(t *testing.T, n int) []int {
	t.Helper()
	var pids []int
	eventually(t, fmt.Sprintf("%d process IDs are printed", n), func() bool {
		lines := strings.SplitAfter(b.String(), "\n")
		pids = nil
		for _, line := range lines {
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err == nil && strings.HasSuffix(line, "\n") {
				pids = append(pids, pid)
			}
		}
		return len(pids) == n
	})
	t.Cleanup(func() {
		if t.Failed() {
			for _, pid := range pids {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	})
	return pids
}

// anyExists reports whether one of the processes exists, even as a zombie.
func anyExists(pids ...int) bool {
	for _, pid := range pids {
		if unix.Kill(pid, 0) != unix.ESRCH {
			return true
		}
	}
	return false
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(4 * time.Minute); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited four minutes: %s", what)
		}
	}
}
