//go:build linux || darwin

package guard_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/fleet/boot"
)

// killAfter is much longer than a busy machine needs to start some processes.
const killAfter = 2 * time.Second

// beWorker runs script under a guard and a lease that it never renews, and prints the result.
func beWorker(script string) int {
	nanos, err := strconv.ParseInt(os.Getenv("GUARD_TEST_UNTIL"), 10, 64)
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	g := guard.New(guard.Config{KillAfter: killAfter})
	defer g.Close()
	g.Renew(time.Duration(nanos))
	c := sh(script)
	c.Output = os.Stdout
	if err := g.Start(); err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println(g.Pid())
	fmt.Println("error:", g.Run(context.Background(), c))
	return 0
}

// startWorker starts a worker process of its own, whose lease may be trusted for
// the given time, and returns the IDs of its guard process and of its command's
// three processes.
func startWorker(t *testing.T, script string, until time.Duration) (worker *exec.Cmd, out *buffer, pids []int) {
	t.Helper()
	out = new(buffer)
	worker = exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), "GUARD_TEST_WORKER="+script, fmt.Sprintf("GUARD_TEST_UNTIL=%d", until))
	worker.Stdout = out
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
	})
	return worker, out, out.pids(t, 4)
}

func TestAKilledWorkerLeavesNoProcessBehind(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"willing": family, "stubborn": stubborn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worker, _, pids := startWorker(t, script, boot.Now()+time.Hour)
			if err := worker.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed := boot.Now()
			eventually(t, "all are gone, the guard too", func() bool { return !anyExists(pids[1:]...) && !isAlive(pids[0]) })
			if took := boot.Now() - killed; took > 2*killAfter {
				t.Errorf("gone after %v, want %v or little more", took, killAfter)
			}
		})
	}
}

func TestAStoppedWorkersCommandIsGoneBeforeItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"willing": family, "stubborn": stubborn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			until := boot.Now() + 8*time.Second // even a busy machine has started the processes by then
			leaseEnd := until + 2*killAfter
			worker, out, pids := startWorker(t, script, until)
			if err := worker.Process.Signal(unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if now := boot.Now(); now > until {
				t.Fatalf("the processes were there only %v after the deadline", now-until)
			}
			if !anyExists(pids[1]) {
				t.Fatal("the command ended before the deadline")
			}
			eventually(t, "all are gone", func() bool { return !anyExists(pids[1:]...) })
			if now := boot.Now(); now < until || now > leaseEnd {
				t.Errorf("gone %v after the deadline, want between 0 and %v", now-until, leaseEnd-until)
			}
			if err := worker.Process.Signal(unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the worker says what happened", func() bool { return strings.Contains(out.String(), "error:") })
			if !strings.Contains(out.String(), "error: lease lost: killed by signal") {
				t.Errorf("the worker printed %q", out.String())
			}
		})
	}
}
