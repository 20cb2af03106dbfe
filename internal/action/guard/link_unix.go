//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/cronce-io/cronce/internal/core"
)

// answerIn bounds how long a guard process may leave its socket full, and how long it may
// take to exit after its commands have ended.
const answerIn = 5 * time.Second

// inGuard is set in the environment of guard processes. If a program does not call Dispatch,
// its guard process would run the program and start another guard.
const inGuard = "CRONCE_GUARD_PROCESS"

// guardName is the process name of guards. It differs from the program's name: if an
// operator killed all processes of one name, the guard would die with the worker, and no
// process would be left to end the commands.
const guardName = "slot-guard"

// link is the worker's side of a running guard process.
type link struct {
	config  Config
	conn    *net.UnixConn
	process *exec.Cmd
	until   func() time.Duration

	wake     chan struct{} // a renewal is due
	outgoing chan outgoing

	ending sync.Once
	why    error // set by ending

	// dead is closed when the process has been reaped. err is then the reason.
	dead chan struct{}
	err  error

	mu      sync.Mutex
	lastID  uint64
	reports map[uint64]chan report // of the commands that run
}

type outgoing struct {
	request
	files []*os.File
	sent  chan error // room for one
}

// newLink starts a guard process.
func newLink(config Config, until func() time.Duration) (*link, error) {
	if os.Getenv(inGuard) != "" {
		return nil, errors.New("a guard process cannot start another one: the program's main does not call guard.Dispatch")
	}
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	conn, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	l := &link{
		config: config, conn: conn, until: until,
		wake: make(chan struct{}, 1), outgoing: make(chan outgoing),
		dead: make(chan struct{}), reports: map[uint64]chan report{},
	}
	l.process = exec.Command(executable, guardArgs(config)...)
	l.process.Args[0] = guardName // a signal by the program's name reaches only the worker
	l.process.Env = append(os.Environ(), inGuard+"=1")
	l.process.ExtraFiles = []*os.File{theirs}
	stderr := &head{max: 2 << 10}
	l.process.Stderr = stderr
	// A session of its own, so that Ctrl-C and Ctrl-Z in the worker's terminal
	// do not reach it.
	l.process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := l.process.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	go l.write()
	go l.read(stderr)
	return l, nil
}

// write sends requests and renewals. It owns the sending half of conn, so that Renew never
// blocks.
func (l *link) write() {
	encoder := newEncoder(l.conn)
	for {
		out := outgoing{sent: make(chan error, 1)}
		select {
		case <-l.wake:
		case out = <-l.outgoing:
		case <-l.dead:
			return
		}
		out.Until = l.until()
		_ = l.conn.SetWriteDeadline(time.Now().Add(answerIn)) // fails if closed, as the write will
		err := encoder.encode(out.request, out.files...)
		out.sent <- err
		if err != nil {
			l.end(err)
			return
		}
	}
}

// end closes the connection. A living guard then ends all commands and itself.
func (l *link) end(why error) {
	l.ending.Do(func() {
		l.why = why
		l.conn.Close()
	})
}

// read delivers reports until the guard is gone.
func (l *link) read(stderr *head) {
	decoder := gob.NewDecoder(l.conn)
	var err error
	for err == nil {
		var r report
		if err = decoder.Decode(&r); err == nil {
			l.deliver(r)
		}
	}
	l.end(err)
	kill := time.AfterFunc(l.config.KillAfter+answerIn, func() { _ = l.process.Process.Kill() })
	waitErr := l.process.Wait()
	kill.Stop()
	l.err = errors.Join(waitErr, stderr.err())
	if l.err == nil {
		l.err = l.why
	}
	close(l.dead)

	l.mu.Lock()
	defer l.mu.Unlock()
	for id, to := range l.reports {
		to <- report{ID: id, Kind: lost}
	}
}

func (l *link) deliver(r report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to, ok := l.reports[r.ID]; ok {
		to <- r // the channel has room for all reports about one command
	}
}

// add returns a new ID for a command and the channel of its reports: at most two from the
// guard, and one if the guard is lost. Once the link is dead, send fails instead.
func (l *link) add() (uint64, <-chan report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastID++
	reports := make(chan report, 3)
	l.reports[l.lastID] = reports
	return l.lastID, reports
}

func (l *link) remove(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reports, id)
}

// send returns when r is written, or will certainly not be written. After that the caller may close
// the files.
func (l *link) send(ctx context.Context, r request, files ...*os.File) error {
	out := outgoing{r, files, make(chan error, 1)}
	select {
	case l.outgoing <- out:
		return <-out.sent
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.dead:
		return l.deadErr()
	}
}

// renew makes write send the newest deadline. It never blocks.
func (l *link) renew() { core.TrySend(l.wake, struct{}{}) } // a pending renewal will send the newest deadline

func (l *link) deadErr() error { return fmt.Errorf("the guard process has ended: %w", l.err) }

// close ends the guard process, and with it all commands.
func (l *link) close() {
	l.end(errClosed)
	<-l.dead
}

// head keeps the first max bytes that are written to it.
type head struct {
	max int
	buf bytes.Buffer
}

func (h *head) Write(p []byte) (int, error) {
	h.buf.Write(p[:min(len(p), h.max-h.buf.Len())])
	return len(p), nil
}

func (h *head) err() error {
	if h.buf.Len() == 0 {
		return nil
	}
	return errors.New(string(bytes.TrimSpace(h.buf.Bytes())))
}
