package main

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
)

// The exit statuses that scripts rely on.
const (
	exitDone         = 0
	exitFailed       = 1   // the server or the environment
	exitUsage        = 2   // wrong usage or configuration: known without a server
	exitFound        = 3   // a check found something
	exitSecondSignal = 130 // a second TERM or Ctrl-C did not wait for the end
)

// exitCode is the one place that turns the end of a command into its status.
func exitCode(err error) int {
	var usage *usageError
	switch {
	case err == nil, brokenPipe(err):
		return exitDone
	case errors.Is(err, errFound):
		return exitFound
	case errors.As(err, &usage):
		return exitUsage
	}
	return exitFailed
}

// errFound is the error of a check that did its work and found something.
var errFound = errors.New("the check found something")

// usageError marks what can be known without a server: a wrong flag, argument or
// file.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// usage marks err as wrong usage or configuration. usage(nil) is nil.
func usage(err error) error {
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

// try adds the next step to err. try(nil, ...) is nil.
func try(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &hintError{err, hint}
}

// brokenPipe reports whether err says that nobody reads our output any more, as
// in "cronce slot ls | head": a clean end.
func brokenPipe(err error) bool {
	const windowsBrokenPipe, windowsNoData = syscall.Errno(109), syscall.Errno(232)
	if errors.Is(err, syscall.EPIPE) {
		return true
	}
	return runtime.GOOS == "windows" && (errors.Is(err, windowsBrokenPipe) || errors.Is(err, windowsNoData))
}

// oneLine puts the parts of a joined error on one line.
func oneLine(err error) error {
	if err == nil || !strings.Contains(err.Error(), "\n") {
		return err
	}
	return &lineError{err}
}

type lineError struct{ err error }

func (e *lineError) Error() string { return strings.ReplaceAll(e.err.Error(), "\n", "; ") }
func (e *lineError) Unwrap() error { return e.err }
