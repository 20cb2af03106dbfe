package base

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"syscall"

	"github.com/cronce-io/cronce/internal/codec"
)

// The exit statuses that scripts rely on.
const (
	ExitDone        = 0
	ExitFailed      = 1   // the server or the environment
	ExitUsage       = 2   // wrong usage or configuration: known without a server
	ExitFound       = 3   // a check found something
	ExitInterrupted = 130 // a second TERM or Ctrl-C, or the first one while the command waited for an outcome
)

// ExitCode maps the error of a command to its exit status.
func ExitCode(err error) int {
	var usage *usageError
	switch {
	case err == nil, BrokenPipe(err):
		return ExitDone
	case errors.Is(err, ErrFound):
		return ExitFound
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, ErrInterrupted):
		return ExitInterrupted
	}
	return ExitFailed
}

// ErrFound is the error of a check that completed and found something.
var ErrFound = errors.New("the check found something")

// ErrInterrupted is the error of a command that a signal stopped while it waited for an outcome.
var ErrInterrupted = errors.New("interrupted")

// usageError marks an error that is known without a server: a wrong flag, argument or
// file.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// Usage marks err as wrong usage or configuration. Usage(nil) is nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

// hintError is an error with the next step to try.
type hintError struct {
	error
	hint string
}

func (e *hintError) Error() string { return e.error.Error() + "; try: " + e.hint }
func (e *hintError) Unwrap() error { return e.error }

// Try adds a next step to err. Try(nil, ...) is nil.
func Try(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &hintError{err, hint}
}

// BrokenPipe reports whether the reader of this program's output has closed it, as in
// "cronce slot ls | head". The command then ends with status 0. A connection to a server that the
// server has closed gives the same error number, in a net.OpError.
func BrokenPipe(err error) bool {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return false
	}
	const windowsBrokenPipe, windowsNoData = syscall.Errno(109), syscall.Errno(232)
	if errors.Is(err, syscall.EPIPE) {
		return true
	}
	return runtime.GOOS == "windows" && (errors.Is(err, windowsBrokenPipe) || errors.Is(err, windowsNoData))
}

// OneLine puts the parts of a joined error on one line.
func OneLine(err error) error {
	if err == nil || !strings.Contains(err.Error(), "\n") {
		return err
	}
	return &lineError{err}
}

type lineError struct{ err error }

func (e *lineError) Error() string { return codec.OneLine(e.err) }
func (e *lineError) Unwrap() error { return e.err }
