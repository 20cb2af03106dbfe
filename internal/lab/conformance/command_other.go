//go:build !unix

package conformance

import (
	"context"
	"os"
	"os/exec"
)

func Shell(ctx context.Context, line string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", line)
}

func ownGroup(*exec.Cmd) {}

func terminate(p *os.Process) error { return p.Kill() }
