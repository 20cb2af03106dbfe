package guard

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Config sets how long commands may take to end. The zero value is usable.
type Config struct {
	// KillAfter is the time from TERM to KILL when the lease can no longer be trusted.
	// Everything must have ended before the lease expires, so it should be half the time
	// between the deadline given to Renew and the end of the lease. Zero means 125 ms, which
	// suits the shortest lease.
	KillAfter time.Duration

	// Grace is the time from TERM to KILL when the context of a command ends, or when the
	// command has left other processes of its group behind. The deadline may shorten it.
	// Zero means 2 s.
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

// Command is what Run starts.
type Command struct {
	// Path is the executable. It is not searched for.
	Path string

	// Args are the arguments, beginning with the name of the command.
	Args []string

	// Env is the whole environment, as NAME=VALUE.
	Env []string

	// Dir is the working directory. Empty: that of the worker.
	Dir string

	// As is the user that the command runs as. Nil: that of the worker. Only root can
	// change it.
	As *Credential

	// Mark are entries of Env. No other command has all of them. The guard uses them to find the
	// processes of the command that have left its group and lost their parents (Linux).
	Mark []string

	// Keep lets the command go on when the deadline of the lease passes. It still ends with
	// its context and with the worker.
	Keep bool

	// Input is the standard input of the command, which need not read it.
	Input []byte

	// Output receives standard output and standard error, from one goroutine that has ended
	// when Run returns. If it is nil, the output is dropped.
	Output io.Writer
}

// Credential is a user with groups, by their numbers on this machine.
type Credential struct {
	UID, GID uint32

	// Groups are the supplementary groups. With KeepGroups the command has the worker's instead.
	Groups     []uint32
	KeepGroups bool
}

// ExitError describes the end of a command that did not succeed.
type ExitError struct {
	// Code is the exit status; -1 if a signal ended the command.
	Code int

	// Signal is the name of the signal that ended the command, such as "terminated", or "".
	Signal string

	// Cause is why the command was ended: the cause of the context, or an error that wraps
	// job.ErrLeaseLost. It is nil if the command ended by itself.
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

var errClosed = errors.New("guard is closed")
