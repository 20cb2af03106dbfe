//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/fleet/boot"
)

// starter starts commands in a goroutine of its own. A file system that hangs can block a
// start, and those behind it, but not the keeper, which has to end commands.
type starter struct {
	until   atomic.Int64 // a reading of boot.Now: nothing is started from then on
	waiting *queue[incoming]
	results chan startResult
	fork    func(incoming) (pid int, err error)
}

// startResult is the result of a start.
type startResult struct {
	id      uint64
	pid     int
	refused bool // the deadline had passed
	err     error
}

func newStarter(fork func(incoming) (int, error)) *starter {
	return &starter{waiting: newQueue[incoming](), results: make(chan startResult), fork: fork}
}

// run never returns in a guard process, because the kernel kills a command when the thread
// that started it ends. In tests a request without a command ends it.
func (s *starter) run() {
	runtime.LockOSThread()
	for {
		in := s.waiting.take()
		if in.Start == nil {
			return
		}
		r := startResult{id: in.ID, refused: boot.Now() >= time.Duration(s.until.Load())}
		if !r.refused {
			r.pid, r.err = s.fork(in)
		}
		for _, fd := range in.files {
			_ = unix.Close(fd)
		}
		s.results <- r
	}
}

// forkExec starts a command.
func forkExec(in incoming) (pid int, err error) {
	for _, fd := range in.files {
		_ = unix.SetNonblock(fd, false) // programs do not expect EAGAIN
	}
	stdin, stdout := uintptr(in.files[0]), uintptr(in.files[1])
	attr := commandAttr()
	if as := in.Start.As; as != nil {
		attr.Credential = &syscall.Credential{Uid: as.UID, Gid: as.GID, Groups: as.Groups, NoSetGroups: as.KeepGroups}
		for _, fd := range in.files {
			// A script that writes to /dev/stderr opens the pipe again, which only its
			// owner may. Systems whose pipes have no owner refuse this.
			_ = unix.Fchown(fd, int(as.UID), int(as.GID))
		}
	}
	return syscall.ForkExec(in.Start.Path, in.Start.Args, &syscall.ProcAttr{
		Env:   in.Start.Env,
		Dir:   in.Start.Dir,
		Files: []uintptr{stdin, stdout, stdout},
		Sys:   attr,
	})
}

func (r startResult) report() report {
	switch {
	case r.refused:
		return report{ID: r.id, Kind: refused}
	case r.err != nil:
		errno, ok := r.err.(syscall.Errno)
		if !ok {
			errno = syscall.EINVAL // a zero byte in a string
		}
		return report{ID: r.id, Kind: failed, Errno: errno}
	}
	return report{ID: r.id, Kind: started, Pid: r.pid}
}

// queue hands values to another goroutine, in order. put never waits.
type queue[T any] struct {
	mu     sync.Mutex
	filled sync.Cond
	values []T
}

func newQueue[T any]() *queue[T] {
	q := &queue[T]{}
	q.filled.L = &q.mu
	return q
}

func (q *queue[T]) put(v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.values = append(q.values, v)
	q.filled.Signal()
}

func (q *queue[T]) take() T {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.values) == 0 {
		q.filled.Wait()
	}
	v := q.values[0]
	var none T
	q.values[0] = none
	q.values = q.values[1:]
	return v
}
