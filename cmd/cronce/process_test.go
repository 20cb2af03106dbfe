//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// command prepares this binary as a real cronce process.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), "CRONCE_TEST_MAIN=1", "XDG_CONFIG_HOME="+t.TempDir(), "XDG_DATA_HOME="+t.TempDir())
	return cmd
}

// begin starts the process and returns its stdout.
func begin(t *testing.T, cmd *exec.Cmd) io.ReadCloser {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return out
}

// A systemd unit reloads all its nodes with HUP, including disabled ones.
func TestDisabledNodeSurvivesHangup(t *testing.T) {
	t.Parallel()
	cmd := command(t, "run")
	cmd.Env = append(cmd.Env, "CRONCE_DISABLED=1")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin(t, cmd)
	if line, err := bufio.NewReader(log).ReadString('\n'); err != nil || !strings.Contains(line, "disabled by CRONCE_DISABLED") {
		t.Fatalf("run says %q, %v", line, err)
	}
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		send(t, cmd, sig)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after HUP and TERM: %v", err)
	}
}

func TestServerUntilTermOrInterrupt(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			store := filepath.Join(t.TempDir(), "store")
			cmd := command(t, "server", "--listen", "127.0.0.1:0", "--store", store, "-o", "json")
			var log strings.Builder
			cmd.Stderr = &log
			line, err := bufio.NewReader(begin(t, cmd)).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			var said struct{ URL, Store string }
			if err := json.Unmarshal([]byte(line), &said); err != nil || said.Store != store {
				t.Fatalf("the server says %q, %v", line, err)
			}
			js := natstest.JetStream(t, natstest.Connect(t, said.URL))
			if _, err := js.AccountInfo(t.Context()); err != nil {
				t.Error(err)
			}
			send(t, cmd, sig)
			if err := cmd.Wait(); err != nil {
				t.Errorf("after %v: %v; log:\n%s", sig, err, &log)
			}
			if strings.ContainsRune(log.String(), '\x1b') {
				t.Errorf("colours in a log that is no terminal:\n%s", &log)
			}
		})
	}
}

func TestReaderThatLeaves(t *testing.T) {
	t.Parallel()
	cmd := command(t, "next", "* * * * * *", "--count", "1000000", "-o", "json")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out := begin(t, cmd)
	out.Close()
	if err := cmd.Wait(); err != nil || stderr.String() != "" {
		t.Errorf("%v, stderr %q: want a clean end", err, &stderr)
	}
}

func TestFirstSignalAsksTheSecondEnds(t *testing.T) {
	exits := make(chan int, 100)
	ctx := base.UntilSignal(t.Context(), func(code int) { exits <- code })
	send := func(sig syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGTERM)
	<-ctx.Done()
	select {
	case code := <-exits:
		t.Fatalf("the first signal ends the process with %d", code)
	default:
	}
	code := 0
	natstest.Eventually(t, "a later signal ends the process", func() bool {
		send(syscall.SIGINT) // the first ones may be taken for echoes
		select {
		case code = <-exits:
			return true
		default:
			return false
		}
	})
	if code != base.ExitInterrupted {
		t.Errorf("exit status %d, want %d", code, base.ExitInterrupted)
	}
}

// A node may be started before its server: it says what it waits for, and a signal
// ends it cleanly. Other commands say at once that nothing answers (TestFailures).
func TestANodeWaitsForTheServerThatItIsTold(t *testing.T) {
	t.Parallel()
	cmd := command(t, "run", "--server", "nats://"+unreachable)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin(t, cmd)
	line, err := bufio.NewReader(stderr).ReadString('\n')
	if err != nil || !strings.Contains(line, "waiting for the NATS server") || !strings.Contains(line, unreachable) {
		t.Errorf("it says %q, %v", line, err)
	}
	send(t, cmd, os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}
