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

// Shell returns the process that runs the line. A line that is one command replaces the shell, so that
// the command receives signals, and that its exit status is known. It may begin with assignments, which
// env understands.
func Shell(ctx context.Context, line string) *exec.Cmd {
	if !strings.ContainsAny(line, ";|&<>()`$\n") && !strings.HasPrefix(line, "exit") {
		line = "exec env " + line
	}
	return exec.CommandContext(ctx, "/bin/sh", "-c", line)
}

// ownGroup puts the command into a process group of its own. The end of its context kills the group.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return nil
	}
}

// Terminate asks the process and those that it has started to stop, as a service manager does.
func (p *Process) Terminate() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) }

// Freeze stops the process and those that it has started until Thaw. If the system does not support
// that, the error is errors.ErrUnsupported.
func (p *Process) Freeze() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGSTOP) }

// Thaw continues a frozen process.
func (p *Process) Thaw() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGCONT) }
