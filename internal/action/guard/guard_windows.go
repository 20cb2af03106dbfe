package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/job"
)

// Guard runs commands that do not outlive the worker. All methods are safe for
// concurrent use.
type Guard struct {
	mu      sync.Mutex
	until   time.Duration
	closing context.Context
	close   context.CancelCauseFunc
}

// New returns a guard. Windows job objects do its work. There is no guard process, and Config is
// ignored, because a job object ends its processes at once.
func New(Config) *Guard {
	closing, cancel := context.WithCancelCause(context.Background())
	return &Guard{closing: closing, close: cancel}
}

// Renew sets the deadline until which the lease may be trusted, a reading of boot.Now. Nothing
// starts before the first call or after the deadline.
func (g *Guard) Renew(until time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = max(g.until, until)
}

func (g *Guard) deadline() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

// Start does nothing here: there is no guard process.
func (g *Guard) Start() error { return nil }

// Close ends all commands. Run fails from then on.
func (g *Guard) Close() { g.close(errClosed) }

// Run runs c and returns when all processes of its job object have ended. It returns nil if the
// command exited with status 0 and Run did not end it, and an *ExitError if it ended otherwise.
// It returns an error that wraps job.ErrLeaseLost if the command was not started because the
// deadline of the lease has passed. When ctx ends, Run ends the processes at once.
func (g *Guard) Run(ctx context.Context, c Command) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(g.closing, func() { cancel(errClosed) })()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.As != nil {
		return fmt.Errorf("run a command as another user: %w on Windows", errors.ErrUnsupported)
	}
	if boot.Now() >= g.deadline() {
		return fmt.Errorf("not started: %w", job.ErrLeaseLost)
	}
	object, err := newJobObject()
	if err != nil {
		return err
	}
	defer windows.CloseHandle(object) // ends what is left in it
	cmd := &exec.Cmd{
		Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir,
		Stdin: bytes.NewReader(c.Input), Stdout: c.Output, Stderr: c.Output,
		// Processes that a command has started before it was put into the job
		// object may hold its output.
		WaitDelay: time.Second,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var assignErr error
	if err := cmd.Process.WithHandle(func(h uintptr) {
		assignErr = windows.AssignProcessToJobObject(object, windows.Handle(h))
	}); err != nil || assignErr != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("put the command into a job object: %w", errors.Join(err, assignErr))
	}
	stop := context.AfterFunc(ctx, func() { _ = windows.TerminateJobObject(object, endedCode) })
	err = cmd.Wait() // also waits for the output, which other processes may hold for WaitDelay
	ended := !stop()
	_ = windows.TerminateJobObject(object, endedCode)
	return result(ctx, err, ended)
}

// endedCode is the exit status of the processes that Run ends.
const endedCode = 1

func result(ctx context.Context, err error, ended bool) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case ok:
		err = &ExitError{Code: exit.ExitCode()}
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // the command succeeded, but other processes held its output
	}
	if !ended {
		return err
	}
	code := 0
	if ok {
		code = exit.ExitCode()
	}
	return &ExitError{Code: code, Cause: context.Cause(ctx)}
}

// newJobObject returns a job object whose processes end when its last handle is closed, which is
// at the latest when this process ends.
func newJobObject() (windows.Handle, error) {
	object, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("create a job object: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
			LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
		},
	}
	_, err = windows.SetInformationJobObject(object, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		windows.CloseHandle(object)
		return 0, fmt.Errorf("set up a job object: %w", err)
	}
	return object, nil
}
