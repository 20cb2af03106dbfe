//go:build !unix

package conformance

import (
	"context"
	"errors"
	"os/exec"
)

func Shell(ctx context.Context, line string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", line)
}

func ownGroup(*exec.Cmd) {}

func (p *Process) Terminate() error { return p.cmd.Process.Kill() }
func (p *Process) Freeze() error    { return errors.ErrUnsupported }
func (p *Process) Thaw() error      { return errors.ErrUnsupported }
