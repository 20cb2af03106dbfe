package conformance

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Process is a client under test that runs until it is stopped.
type Process struct {
	cmd  *exec.Cmd
	said *tail
	end  context.CancelFunc
	gone chan struct{}
	err  error // how it ended; read it after gone
}

// Start starts the command. It ends with ctx at the latest.
func Start(ctx context.Context, command Command) (*Process, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &Process{cmd: command.prepare(ctx), said: &tail{}, end: cancel, gone: make(chan struct{})}
	p.cmd.Stderr = p.said
	p.cmd.Stdout = p.said
	if err := p.cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start --cmd %q: %w", command.Line, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.gone)
	}()
	return p, nil
}

// Ended reports whether the process has ended, and how.
func (p *Process) Ended() (how string, ended bool) {
	select {
	case <-p.gone:
		if p.err == nil {
			return "exit status 0", true
		}
		return p.err.Error(), true
	default:
		return "", false
	}
}

// Terminate asks the process to stop, as a service manager does.
func (p *Process) Terminate() error { return terminate(p.cmd.Process) }

// Freeze stops the process and all that it has started where they are, until Thaw. The error is
// errors.ErrUnsupported if the system cannot do that.
func (p *Process) Freeze() error { return freeze(p.cmd.Process) }

// Thaw has a frozen process go on.
func (p *Process) Thaw() error { return thaw(p.cmd.Process) }

// Kill ends the process and all that it has started, and waits for that.
func (p *Process) Kill() {
	p.end()
	<-p.gone
}

// Said returns the end of what the process wrote to its standard output and error.
func (p *Process) Said() string {
	return strings.TrimPrefix(p.said.String(), "; its standard error ends: ")
}
