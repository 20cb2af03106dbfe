package conformance

import (
	"context"
	"fmt"
	"os/exec"
)

// Process is a running client under test.
type Process struct {
	cmd  *exec.Cmd
	said *tail
	end  context.CancelFunc
	gone chan struct{}
	err  error // of its end; valid when gone is closed
}

// Start starts the command. The process ends with ctx at the latest.
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

// Kill ends the process and those that it has started, and waits until it has ended.
func (p *Process) Kill() {
	p.end()
	<-p.gone
}

// Said returns the end of what the process wrote to its standard output and error.
func (p *Process) Said() string { return p.said.String() }
