//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import (
	"io"
	"os"
	"sync"
	"time"
)

// drainFor is how long the output of a command is read on after its group is
// gone. What it wrote is read at once; only a process that left the group can
// hold the pipe open.
const drainFor = 100 * time.Millisecond

// stdio is a command's standard input and output, and what feeds and drains
// them.
type stdio struct {
	stdin, stdout *os.File // the command's ends
	input, output *os.File // ours
	copying       sync.WaitGroup
}

func newStdio(input []byte, output io.Writer) (*stdio, error) {
	if output == nil {
		output = io.Discard
	}
	var s stdio
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
		// It fails if the command does not read it all, as it may.
		_, _ = s.input.Write(input)
		s.input.Close()
	})
	s.copying.Go(func() {
		_, _ = io.Copy(output, s.output)
		// A writer that fails must not stop the command.
		_, _ = io.Copy(io.Discard, s.output)
	})
	return &s, nil
}

// handOver closes the command's ends, which it has by now or never will.
func (s *stdio) handOver() {
	s.stdin.Close()
	s.stdout.Close()
}

// close ends the copying. After handOver.
func (s *stdio) close() {
	s.input.Close()
	_ = s.output.SetReadDeadline(time.Now().Add(drainFor))
	s.copying.Wait()
	s.output.Close()
}
