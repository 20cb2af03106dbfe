//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxPipe is the largest buffer that Linux allows an ordinary user to give a pipe. Pipes
// of the other systems are smaller.
const maxPipe = 1 << 20

// stdio is the standard input and output of a command, and the goroutines that copy them.
type stdio struct {
	stdin, stdout *os.File // the command's ends
	input, output *os.File // our ends
	sink          io.Writer
	copying       sync.WaitGroup
}

// newStdio opens the pipes and starts to copy. A nil sink drops the output.
func newStdio(input []byte, sink io.Writer) (*stdio, error) {
	if sink == nil {
		sink = io.Discard
	}
	s := stdio{sink: sink}
	var err error
	if s.stdin, s.input, err = os.Pipe(); err != nil {
		return nil, err
	}
	if s.output, s.stdout, err = os.Pipe(); err != nil {
		s.stdin.Close()
		s.input.Close()
		return nil, err
	}
	s.copying.Go(func() {
		// The write fails if the command does not read all of its input, which it need not.
		_, _ = s.input.Write(input)
		s.input.Close()
	})
	s.copying.Go(func() {
		if _, err := io.Copy(s.sink, s.output); err != nil {
			// If the sink fails, the command must still be able to write.
			_, _ = io.Copy(io.Discard, s.output)
		}
	})
	return &s, nil
}

// handOver closes the command's ends. Call it when the command has its copies, or was not started.
func (s *stdio) handOver() {
	s.stdin.Close()
	s.stdout.Close()
}

// close ends the copying and then empties the output's pipe into the sink. Call it after
// handOver, when the command has ended.
//
// What the command wrote before its end is in the pipe, so close reads it without waiting,
// however long the copying goroutine was kept from running. close does not wait for the end
// of the file, because a process that left the command's group may hold the pipe open.
func (s *stdio) close() {
	s.input.Close()
	_ = s.output.SetReadDeadline(time.Unix(1, 0)) // long past: ends the copying between two reads
	s.copying.Wait()
	_ = s.output.SetReadDeadline(time.Time{})
	s.drain()
	s.output.Close()
}

// drain reads what is in the pipe, and at most maxPipe bytes, because a process that left
// the group may write faster than drain reads.
func (s *stdio) drain() {
	raw, err := s.output.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 32<<10)
	for total := 0; total < maxPipe; {
		n := 0
		// The pipe is non-blocking, so that the runtime can poll it: an empty one is EAGAIN.
		if err := raw.Read(func(fd uintptr) bool {
			for {
				if n, err = unix.Read(int(fd), buf); err != unix.EINTR {
					return true
				}
			}
		}); err != nil || n <= 0 {
			return
		}
		_, _ = s.sink.Write(buf[:n])
		total += n
	}
}
