//go:build unix

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// workshop is the folder of the built programs, which all tests share. Every user may read it, because one
// test runs cronce as a user with fewer rights.
var workshop string

func TestMain(m *testing.M) {
	if addr := os.Getenv(serviceAddress); addr != "" {
		fmt.Fprintln(os.Stderr, serve(addr))
		os.Exit(1)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	var err error
	if workshop, err = os.MkdirTemp("", "cronce-integration"); err == nil {
		err = os.Chmod(workshop, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(workshop)
	if raceDetector { // programs with it need more CPU time
		natstest.WaitMore(5)
	} else {
		natstest.WaitMore(12)
	}
	code := m.Run()
	if left := leftovers(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "processes outlived their tests:\n%s\n", strings.Join(left, "\n"))
		code = max(code, 1)
	}
	return code
}

var (
	cronce     = sync.OnceValues(func() (string, error) { return build("github.com/cronce-io/cronce/cmd/cronce") })
	web        = sync.OnceValues(func() (string, error) { return build("github.com/cronce-io/cronce/integration/web") })
	sqlExample = sync.OnceValues(func() (string, error) { return build("github.com/cronce-io/cronce/examples/sql") })
	cronceLab  = sync.OnceValues(func() (string, error) { return buildIn("../lab", "github.com/cronce-io/cronce/lab/cmd/cronce-lab") })
	// traceCollector prints the spans that it receives.
	traceCollector = sync.OnceValues(func() (string, error) { return buildIn("../lab", "github.com/cronce-io/cronce/lab/collector") })
	natsServer     = sync.OnceValues(func() (string, error) { return build("github.com/nats-io/nats-server/v2") })
)

// build compiles a main package of this module or of one that it requires. It has the race detector if the
// tests have it.
func build(pkg string) (string, error) { return buildIn(".", pkg) }

// buildIn compiles a main package for the module that has the folder dir.
func buildIn(dir, pkg string) (string, error) {
	path := filepath.Join(workshop, strings.TrimSuffix(filepath.Base(pkg), "v2")+".bin")
	args := []string{"build", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// program returns the path of a program that build compiles.
func program(t *testing.T, build func() (string, error)) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// need skips the test if something is missing that not every machine has. why is the reason; it is empty if
// nothing is missing. With CRONCE_TEST_NO_SKIP=1, the test fails instead.
func need(t *testing.T, what, why string) {
	t.Helper()
	switch {
	case why == "":
	case os.Getenv("CRONCE_TEST_NO_SKIP") == "1":
		t.Fatalf("needs %s, and CRONCE_TEST_NO_SKIP=1 forbids to skip: %s", what, why)
	default:
		t.Skipf("needs %s: %s", what, why)
	}
}

// leftovers waits until no process runs a program of the workshop any more. It returns the processes that do
// not end, such as guards that did not notice the end of their workers. Without /proc it finds none.
func leftovers() (left []string) {
	deadline := time.After(natstest.Patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left = nil
		links, _ := filepath.Glob("/proc/[0-9]*/exe")
		for _, link := range links {
			if exe, err := os.Readlink(link); err == nil && strings.HasPrefix(exe, workshop) {
				cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
				left = append(left, link+": "+strings.ReplaceAll(string(cmdline), "\x00", " "))
			}
		}
		select {
		case <-tick.C:
			if len(left) == 0 {
				return nil
			}
		case <-deadline:
			return left
		}
	}
}
