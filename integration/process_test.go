//go:build unix

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// process is a program that runs beside the test. The end of the test kills it.
type process struct {
	t       *testing.T
	name    string
	cmd     *exec.Cmd
	out     string // the folder with its output
	started time.Time
	ended   chan struct{}
}

// start runs a program. Its environment is env, without the variables of the test.
func start(t *testing.T, name string, env []string, as *syscall.SysProcAttr, path string, args ...string) *process {
	t.Helper()
	return startCommand(t, name, env, as, exec.Command(path, args...))
}

// startReading runs a program that reads a pipe.
func startReading(t *testing.T, name string, env []string, stdin *os.File, path string, args ...string) *process {
	t.Helper()
	defer stdin.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdin = stdin
	return startCommand(t, name, env, nil, cmd)
}

func startCommand(t *testing.T, name string, env []string, as *syscall.SysProcAttr, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, name: name, out: t.TempDir(), started: time.Now(), ended: make(chan struct{})}
	p.cmd = cmd
	p.cmd.Env, p.cmd.SysProcAttr = env, as
	// With pipes, Wait would wait for each child that holds one open.
	stdout, stderr := p.create("stdout"), p.create("stderr")
	defer stdout.Close()
	defer stderr.Close()
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	if err := begin(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the status is in ProcessState
		close(p.ended)
	}()
	t.Cleanup(p.cleanUp)
	return p
}

// begin starts a command. On Linux, the command also ends if the test binary panics at its timeout.
var begin = (*exec.Cmd).Start

func (p *process) create(stream string) *os.File {
	p.t.Helper()
	f, err := os.Create(filepath.Join(p.out, stream))
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

func (p *process) cleanUp() {
	_ = p.cmd.Process.Kill() // this ends a suspended process, too
	<-p.ended
	if p.t.Failed() && p.stderr() != "" {
		p.t.Logf("%s (%s) said:\n%s", p.name, strings.Join(p.cmd.Args[1:], " "), p.stderr())
	}
	if strings.Contains(p.stderr(), "DATA RACE") {
		p.t.Errorf("%s has a data race:\n%s", p.name, p.stderr())
	}
}

func (p *process) stdout() string { return p.read("stdout") }
func (p *process) stderr() string { return p.read("stderr") }

func (p *process) read(stream string) string {
	data, err := os.ReadFile(filepath.Join(p.out, stream))
	if err != nil {
		p.t.Error(err)
	}
	return string(data)
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %s to %s: %v", s, p.name, err)
	}
}

// kill ends the process as a power cut would, and waits for its end.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// exit waits for the end and returns the exit status: -1 if a signal ended it.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(natstest.Patience):
		p.t.Fatalf("%s does not end within %v", p.name, natstest.Patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// says waits until the process has written text to stderr.
func (p *process) says(text string) {
	p.t.Helper()
	eventually(p.t, p.name+" to say "+text, func() bool {
		if !p.running() && !strings.Contains(p.stderr(), text) {
			p.t.Fatalf("%s has ended with %d and did not say %q", p.name, p.cmd.ProcessState.ExitCode(), text)
		}
		return strings.Contains(p.stderr(), text)
	})
}

// eventually waits until done reports true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	natstest.Eventually(t, what, done)
}

// alive reports whether the process exists and is no zombie. If the machine's first process does not reap its
// children, an orphan stays a zombie for ever.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// term ends the process with TERM. Its exit status must be 0.
func term(p *process) {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		p.t.Errorf("%s ends with %d after TERM", p.name, code)
	}
}
