//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Guard runs commands that do not outlive the lease. All methods are safe for
// concurrent use.
type Guard struct {
	config Config

	// These are not guarded by mu, so that a heartbeat never waits for the start of a process.
	until atomic.Int64         // a time.Duration
	link  atomic.Pointer[link] // nil, or the last guard process, which may be dead

	mu     sync.Mutex // held to set link
	closed bool
}

// New returns a guard without a process: the first Run, or Start, starts it.
func New(config Config) *Guard { return &Guard{config: config.withDefaults()} }

// Renew sets the deadline until which the lease may be trusted, a reading of boot.Now.
// Nothing starts before the first call or after the deadline. A deadline earlier than the
// last one changes nothing. Renew never blocks.
func (g *Guard) Renew(until time.Duration) {
	for {
		last := g.until.Load()
		if last >= int64(until) {
			return
		}
		if g.until.CompareAndSwap(last, int64(until)) {
			break
		}
	}
	if link := g.link.Load(); link != nil {
		link.renew()
	}
}

// Start starts the guard process unless it runs. Otherwise the first Run starts it.
func (g *Guard) Start() error {
	_, err := g.connect()
	return err
}

func (g *Guard) connect() (*link, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errClosed
	}
	if link := g.link.Load(); link != nil && !core.IsClosed(link.dead) {
		return link, nil
	}
	link, err := newLink(g.config, g.deadline)
	if err != nil {
		return nil, fmt.Errorf("start the guard process: %w", err)
	}
	g.link.Store(link)
	return link, nil
}

func (g *Guard) deadline() time.Duration { return time.Duration(g.until.Load()) }

// Close ends all commands, as if the lease had been lost, and the guard process. From then
// on Run fails.
func (g *Guard) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	if link := g.link.Load(); link != nil {
		link.close()
	}
}

// Run runs c and returns when its whole process group has ended. It returns nil if the
// command exited with status 0 and the guard did not end it, and an *ExitError if it ended
// otherwise. It returns an error that wraps job.ErrLeaseLost if the command was not started
// because the deadline of the lease has passed, and a *fs.PathError if it could not be
// started. When ctx ends, the group is ended.
func (g *Guard) Run(ctx context.Context, c Command) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l, err := g.connect()
	if err != nil {
		return err
	}
	std, err := newStdio(c.Input, c.Output)
	if err != nil {
		return err
	}
	defer std.close()
	id, reports := l.add()
	defer l.remove(id)
	err = l.send(ctx, request{ID: id, Start: &start{Path: c.Path, Args: c.Args, Env: c.Env, Mark: c.Mark, Keep: c.Keep, Dir: c.Dir, As: c.As}}, std.stdin, std.stdout)
	std.handOver()
	if err != nil {
		return err
	}
	return l.follow(ctx, id, c, reports)
}

// follow waits for the end of a command that the guard was asked to start.
func (l *link) follow(ctx context.Context, id uint64, c Command, reports <-chan report) error {
	pid, done := 0, ctx.Done()
	for {
		select {
		case <-done:
			done = nil
			// An error means that the link is about to be dead.
			_ = l.send(context.Background(), request{ID: id, End: true})
		case r := <-reports:
			switch r.Kind {
			case started:
				pid = r.Pid
			case failed:
				return &fs.PathError{Op: "exec", Path: c.Path, Err: r.Errno}
			case refused:
				return fmt.Errorf("not started: %w", job.ErrLeaseLost)
			case gone:
				return r.result(ctx)
			case lost:
				abandon(pid, c.Mark)
				return l.deadErr()
			}
		}
	}
}

// abandon kills the processes of a command whose guard has died. The pid is 0 if the guard
// did not report the start. The command may run nevertheless, so abandon looks for processes
// with its mark (Linux).
func abandon(pid int, mark []string) {
	if pid != 0 {
		killGroup(pid)
		return
	}
	for pid, p := range processes() {
		if !p.zombie && len(mark) > 0 && hasMark(environ(pid), mark) {
			killGroup(p.group)
		}
	}
}

// killGroup kills a group, and waits for its end for at most answerIn.
func killGroup(pid int) {
	tick := time.NewTicker(endEvery)
	defer tick.Stop()
	late := time.NewTimer(answerIn)
	defer late.Stop()
	for exists(pid) {
		_ = unix.Kill(-pid, unix.SIGKILL)
		if onlyZombies(pid) {
			return
		}
		select {
		case <-tick.C:
		case <-late.C:
			return
		}
	}
}

func (r report) result(ctx context.Context) error {
	if !r.Ended && r.Status.Exited() && r.Status.ExitStatus() == 0 {
		return nil
	}
	err := &ExitError{Code: r.Status.ExitStatus()}
	if r.Status.Signaled() {
		err.Signal = r.Status.Signal().String()
	}
	switch {
	case r.Lapsed:
		err.Cause = job.ErrLeaseLost
	case r.Ended:
		err.Cause = context.Cause(ctx)
	}
	return err
}
