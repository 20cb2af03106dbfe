package guard

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Config says how long commands may take to end. The zero value is usable.
type Config struct {
	// KillAfter is the time from TERM to KILL once the lease can no longer be
	// trusted. All must be over before the lease is, so it should be half the
	// time between the deadline given to Renew and the lease's end. Zero:
	// 125 ms, right for the shortest lease there is.
	KillAfter time.Duration

	// Grace is the time from TERM to KILL when a command's context ends or when
	// it leaves others of its group behind; the deadline may shorten it. Zero:
	// 2 s.
	Grace time.Duration
}

func (c Config) withDefaults() Config {
	if c.KillAfter <= 0 {
		c.KillAfter = 125 * time.Millisecond
	}
	if c.Grace <= 0 {
		c.Grace = 2 * time.Second
	}
	return c
}

// Command is what Run starts, in the worker's working directory.
type Command struct {
	// Path of the executable; no search is done.
	Path string

	// Args is the argument list, the command's own name first.
	Args []string

	// Env is the whole environment, as NAME=VALUE.
	Env []string

	// Mark are entries of Env that no other command has. By them the guard knows the
	// command's processes that have left its group and lost their parents (Linux).
	Mark []string

	// Keep has the command go on when the lease's deadline passes. It still ends
	// with its context, and with the worker.
	Keep bool

	// Input is what the command reads from its standard input. It need not
	// read it.
	Input []byte

	// Output takes what the command writes to standard output and standard
	// error, from one goroutine, which has ended when Run returns. Nil: it is
	// dropped.
	Output io.Writer
}

// ExitError says how a command ended that did not succeed.
type ExitError struct {
	// Code is the exit status; -1 if a signal ended the command.
	Code int

	// Signal is the signal's name, such as "terminated"; else empty.
	Signal string

	// Cause is why the command was ended; nil if it ended by itself. It is the
	// cause of the context, or wraps job.ErrLeaseLost.
	Cause error
}

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != "" {
		how = "killed by signal " + e.Signal
	}
	if e.Cause == nil {
		return how
	}
	return fmt.Sprintf("%v: %s", e.Cause, how)
}

func (e *ExitError) Unwrap() error { return e.Cause }

var (
	errClosed = errors.New("guard is closed")
)
