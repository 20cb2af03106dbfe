package torture

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/fleet/boot"
)

// process is one life of a child of this process. The child ends when this process ends, even by a
// KILL, because it reads its stdin, a pipe that only this process holds open. The child gets its
// spec as the first line of stdin, because other users of the machine can see arguments.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string // path of the file with its stderr
	stdin io.WriteCloser

	ended chan struct{} // closed when it has ended
	died  time.Duration // when it ended, by boot.Now; set before ended is closed
}

// start starts this program in a role, as a child.
func (t *torture) start(name, role, spec string) (*process, error) {
	return t.startCommand(name, t.cfg.Command(role), spec)
}

// startCommand starts a child, and writes its spec to its stdin, unless the spec is empty.
func (t *torture) startCommand(name string, cmd *exec.Cmd, spec string) (*process, error) {
	p := &process{name: name, cmd: cmd, log: filepath.Join(t.cfg.Dir, name+".log"), ended: make(chan struct{})}
	ownGroup(p.cmd)
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stderr = log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// If the write fails, the child has ended, and its exit status says why.
	if spec != "" {
		_, _ = io.WriteString(p.stdin, spec+"\n")
	}
	go func() {
		_ = p.cmd.Wait() // the status is in ProcessState
		p.died = boot.Now()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) signal(s os.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(fmt.Sprintf("torture: send signal %v to the child %s: %v", s, p.name, err))
	}
}

// kill ends the process, even if it is stopped, and waits until it has ended.
func (p *process) kill() {
	p.signal(os.Kill)
	<-p.ended
}

func (p *process) running() bool { return !core.IsClosed(p.ended) }

func (p *process) logTail() string {
	const most = 2000
	data, _ := os.ReadFile(p.log)
	return strings.TrimSpace(string(data[max(0, len(data)-most):]))
}
