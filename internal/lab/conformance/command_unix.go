//go:build unix

package conformance

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Shell runs the line. A line that is one command takes the shell's place, so that it gets the
// signals, and its exit status is known.
func Shell(ctx context.Context, line string) *exec.Cmd {
	if !strings.ContainsAny(line, ";|&<>()`$\n") && !strings.HasPrefix(line, "exit") {
		line = "exec " + line
	}
	return exec.CommandContext(ctx, "/bin/sh", "-c", line)
}

// ownGroup has the end of the command end all that it has started.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return nil
	}
}

// terminate sends a TERM to the command and to all that it has started.
func terminate(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGTERM) }

func freeze(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGSTOP) }
func thaw(p *os.Process) error   { return syscall.Kill(-p.Pid, syscall.SIGCONT) }
