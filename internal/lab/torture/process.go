package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/fleet/boot"
)

// process is one life of a child. It ends with this process, however that ends:
// it reads a pipe that only this process holds open. Its spec is the first line
// there, since arguments are for everybody to see.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string // its stderr
	lives io.WriteCloser

	gone chan struct{} // closed when it has ended
	// Set before gone is closed.
	died time.Duration // reading of boot.Now
}

// start makes this program a child, in a role.
func (t *torture) start(name, role, spec string) (*process, error) {
	p := &process{name: name, log: filepath.Join(t.dir, name+".log"), gone: make(chan struct{})}
	p.cmd = t.cfg.Command(role)
	ownGroup(p.cmd)
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stderr = log
	if p.lives, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// If it is gone already its end tells why.
	_, _ = io.WriteString(p.lives, spec+"\n")
	go func() {
		_ = p.cmd.Wait() // the status stands in ProcessState
		p.died = boot.Now()
		close(p.gone)
	}()
	return p, nil
}

func (p *process) signal(s os.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(fmt.Sprintf("torture: signal %v to a child of its own: %v", s, err))
	}
}

// kill ends it, stopped or not, and waits until it is gone.
func (p *process) kill() {
	p.signal(os.Kill)
	<-p.gone
}

func (p *process) running() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// lastWords are the end of what it logged.
func (p *process) lastWords() string {
	const most = 2000
	data, _ := os.ReadFile(p.log)
	return strings.TrimSpace(string(data[max(0, len(data)-most):]))
}

// sleep waits, and reports whether it was let.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// deaths is when each life of a process was seen to have ended.
type deaths struct {
	mu sync.Mutex
	at map[string]time.Duration
}

func (d *deaths) note(p *process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at[p.name] = p.died
}
