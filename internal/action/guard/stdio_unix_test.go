//go:build linux || darwin

package guard

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// starved is a sink that blocks the copying goroutine from its first read until close ends the
// copying.
type starved struct {
	read       bytes.Buffer
	output     *os.File
	blocked    chan struct{} // closed at the first read
	hasBlocked bool
}

func (s *starved) Write(p []byte) (int, error) {
	if !s.hasBlocked {
		s.hasBlocked = true
		close(s.blocked)
		raw, err := s.output.SyscallConn()
		if err != nil {
			return 0, err
		}
		// It returns when the deadline for reads passes.
		if err := raw.Read(func(uintptr) bool { return false }); !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
	}
	return s.read.Write(p)
}

// A worker that gets no CPU time has read only the first part of the output when the command ends. A
// grandchild holds the pipe open.
func TestOutputIsReadWholeHoweverLateTheWorkerReadsIt(t *testing.T) {
	t.Parallel()
	sink := &starved{blocked: make(chan struct{})}
	s, err := newStdio(nil, sink)
	if err != nil {
		t.Fatal(err)
	}
	sink.output = s.output
	grandchild := dup(t, s.stdout)
	written := bytes.Repeat([]byte("0123456789abcdef"), 60<<10/16) // fits into a pipe and needs two reads
	if _, err := s.stdout.Write(written); err != nil {
		t.Fatal(err)
	}
	<-sink.blocked
	s.handOver()
	s.close()
	if !bytes.Equal(sink.read.Bytes(), written) {
		t.Errorf("%d bytes were written before the end, %d were read", len(written), sink.read.Len())
	}
	grandchild.Close()
}

// A grandchild writes without a pause.
func TestOutputOfAGrandchildThatGoesOnDoesNotHoldTheSlotUp(t *testing.T) {
	t.Parallel()
	s, err := newStdio(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	grandchild, ended := dup(t, s.stdout), make(chan struct{})
	go func() {
		defer close(ended)
		for err := error(nil); err == nil; {
			_, err = grandchild.Write(make([]byte, 4<<10))
		}
		grandchild.Close()
	}()
	s.handOver()
	s.close()
	<-ended // the pipe has no reader any more
}

// dup returns another file that refers to the same pipe.
func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}
