//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/codec"
)

// request is a message of the worker to the guard. Every request renews the deadline.
type request struct {
	// Until is the reading of boot.Now up to which the lease may be trusted.
	Until time.Duration

	// ID names a command. It is zero if the request only renews the deadline.
	ID uint64

	// Start starts a command. The files that come with the request are its standard input and
	// output.
	Start *start

	// End ends the command named by ID.
	End bool
}

type start struct {
	Path      string
	Args, Env []string
	Mark      []string
	Keep      bool
	Dir       string
	As        *Credential

	killAt time.Duration // only in the guard: set if the worker asked to end the command while it was starting
}

// report is a message of the guard to the worker about the command named by ID.
type report struct {
	ID   uint64
	Kind kind

	// Pid is the process ID of the command, and the number of its process group. It is set if
	// Kind is started.
	Pid int

	// Errno is why the command did not start. It is set if Kind is failed.
	Errno syscall.Errno

	// These are set if Kind is gone. Status is the status of wait(2). Ended reports whether the
	// guard began to end the command before it exited, and Lapsed whether it did so because of
	// the deadline.
	Status        syscall.WaitStatus
	Ended, Lapsed bool
}

type kind int

const (
	started kind = iota + 1
	failed       // the start failed
	refused      // not started: the deadline has passed
	gone         // the whole process group has ended
	lost         // the guard has died; made by the worker, never sent
)

// socketpair returns the two ends of the connection of worker and guard, closed
// on exec.
func socketpair() (ours *net.UnixConn, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "guard")
	ours, err = unixConn(os.NewFile(uintptr(fds[0]), "guard"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// unixConn turns f into a connection, and closes f.
func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("file %d is a %s connection, not a Unix socket", f.Fd(), c.LocalAddr().Network())
	}
	return conn, nil
}

// encoder writes values, each with the files that belong to it. It uses gob, because JSON would
// change arguments and variables that are not UTF-8.
type encoder struct {
	conn *net.UnixConn
	gob  *gob.Encoder
	buf  *bytes.Buffer
}

func newEncoder(conn *net.UnixConn) *encoder {
	buf := new(bytes.Buffer)
	return &encoder{conn, gob.NewEncoder(buf), buf}
}

func (e *encoder) encode(v any, files ...*os.File) error {
	e.buf.Reset()
	if err := e.gob.Encode(v); err != nil {
		return err
	}
	data := e.buf.Bytes()
	if len(files) > 0 {
		fds := codec.Map(files, func(f *os.File) int { return int(f.Fd()) })
		// One byte carries the files: unlike Write, WriteMsgUnix may write less
		// than all.
		if _, _, err := e.conn.WriteMsgUnix(data[:1], unix.UnixRights(fds...), nil); err != nil {
			return err
		}
		data = data[1:]
	}
	_, err := e.conn.Write(data)
	return err
}

// fileReader reads from a connection, and keeps the files that are sent over it, in order.
type fileReader struct {
	conn  *net.UnixConn
	files []int
}

func (r *fileReader) Read(p []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(16*4))
	n, oobn, _, _, err := r.conn.ReadMsgUnix(p, oob)
	n = max(n, 0) // it is -1 with some errors, and callers of an io.Reader panic on that
	if err == nil && n == 0 && len(p) > 0 {
		err = io.EOF
	}
	messages, parseErr := unix.ParseSocketControlMessage(oob[:oobn])
	if parseErr != nil {
		return n, parseErr
	}
	for _, m := range messages {
		fds, parseErr := unix.ParseUnixRights(&m)
		if parseErr != nil {
			return n, parseErr
		}
		r.files = append(r.files, fds...)
	}
	return n, err
}

func (r *fileReader) take(n int) ([]int, error) {
	if len(r.files) < n {
		return nil, fmt.Errorf("%d files came with a request that needs %d", len(r.files), n)
	}
	files := r.files[:n:n]
	r.files = r.files[n:]
	return files, nil
}
