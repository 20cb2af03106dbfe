//go:build !unix

package conformance

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

func Shell(ctx context.Context, line string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", line)
}

func ownGroup(*exec.Cmd) {}

func terminate(p *os.Process) error { return p.Kill() }

func freeze(*os.Process) error { return errors.ErrUnsupported }
func thaw(*os.Process) error   { return errors.ErrUnsupported }
