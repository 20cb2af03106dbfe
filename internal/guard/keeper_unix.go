//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/boot"
)

const (
	// lookEvery bounds how late the end of a suspend is noticed.
	lookEvery = 100 * time.Millisecond

	// endEvery is how often groups that are ending are looked at: systems that
	// let another process adopt orphans do not tell when those have gone.
	endEvery = 10 * time.Millisecond

	// reapIn is how long the parents of killed processes have to reap them.
	reapIn = 500 * time.Millisecond
)

// serve is the guard process: it keeps commands for the worker at the other end
// of conn until that is gone, and ends what is left then.
func serve(conn *net.UnixConn, config Config) error {
	// The kernel kills a command when the thread that started it ends, not the
	// process: all are started by this one.
	runtime.LockOSThread()
	adoptOrphans()
	// Those who end the worker often signal its whole cgroup or all of its name.
	// The guard has to stay until its commands are gone. The signals are caught,
	// not ignored: commands would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)

	k := &keeper{config: config, groups: map[uint64]*group{}, reports: newEncoder(conn)}
	requests := make(chan incoming)
	var broken error
	go func() {
		broken = receive(conn, requests)
		close(requests)
	}()
	timer := time.NewTimer(0)
	for !k.orphaned || len(k.groups) > 0 {
		select {
		case in, ok := <-requests:
			if ok {
				k.handle(in)
			} else {
				requests, k.orphaned = nil, true
				k.endAll(boot.Now() + config.KillAfter)
			}
		case <-children:
		case <-timer.C:
		}
		k.reap()
		k.enforce(boot.Now())
		timer.Reset(k.pause(boot.Now()))
	}
	return broken
}

// incoming is a request with its files.
type incoming struct {
	request
	files []int
}

// receive passes on what the worker says until it is gone.
func receive(conn *net.UnixConn, to chan<- incoming) error {
	r := &fileReader{conn: conn}
	decoder := gob.NewDecoder(r)
	for {
		var in incoming
		err := decoder.Decode(&in.request)
		if err == nil && in.Start != nil {
			in.files, err = r.take(2)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			return nil // the worker is gone; reset, if it had not read all
		}
		if err != nil {
			return err
		}
		to <- in
	}
}

// keeper holds what the guard process knows. One goroutine uses it.
type keeper struct {
	config   Config
	until    time.Duration
	orphaned bool
	groups   map[uint64]*group
	reports  *encoder
}

// group is the process group of one command. The number of its leader cannot be
// given to another process before the leader is reaped and all others have left.
type group struct {
	pid    int
	keep   bool // beyond the deadline
	exited bool // and reaped
	status syscall.WaitStatus

	ending   bool          // TERM was sent
	killAt   time.Duration // if ending
	killedAt time.Duration // when KILL was sent first; zero: it was not

	ended, lapsed bool // as in report
}

func (k *keeper) handle(in incoming) {
	// What ran while the lease was over must end, even if the worker has a new
	// one by now; what has exited before this request was not ended by it.
	k.reap()
	k.enforce(boot.Now())
	k.until = max(k.until, in.Until)
	switch g := k.groups[in.ID]; {
	case in.Start != nil:
		k.report(k.start(in))
	case in.End && g != nil:
		g.end(boot.Now() + k.config.Grace)
	}
}

func (k *keeper) start(in incoming) report {
	defer func() {
		for _, fd := range in.files {
			_ = unix.Close(fd)
		}
	}()
	if boot.Now() >= k.until {
		return report{ID: in.ID, Kind: refused}
	}
	for _, fd := range in.files {
		_ = unix.SetNonblock(fd, false) // programs do not expect EAGAIN
	}
	stdin, stdout := uintptr(in.files[0]), uintptr(in.files[1])
	pid, err := syscall.ForkExec(in.Start.Path, in.Start.Args, &syscall.ProcAttr{
		Env:   in.Start.Env,
		Files: []uintptr{stdin, stdout, stdout},
		Sys:   commandAttr(),
	})
	if err != nil {
		errno, ok := err.(syscall.Errno)
		if !ok {
			errno = syscall.EINVAL // a zero byte in a string
		}
		return report{ID: in.ID, Kind: failed, Errno: errno}
	}
	k.groups[in.ID] = &group{pid: pid, keep: in.Start.Keep}
	return report{ID: in.ID, Kind: started, Pid: pid}
}

// report never blocks for long: a worker that does not read does not ask for
// commands either, and the reports on those that run fit into the socket. An
// error means that the worker is gone, which the receiver notices.
func (k *keeper) report(r report) { _ = k.reports.encode(r) }

// reap collects every child that has exited: commands, and adopted orphans.
func (k *keeper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		for _, g := range k.groups {
			if g.pid == pid && !g.exited {
				g.exited, g.status = true, status
			}
		}
	}
}

// enforce does what is due, and forgets groups that are gone.
func (k *keeper) enforce(now time.Duration) {
	for id, g := range k.groups {
		if g.exited && g.isGone(now) {
			delete(k.groups, id)
			k.report(report{ID: id, Kind: gone, Status: g.status, Ended: g.ended, Lapsed: g.lapsed})
			continue
		}
		if now >= k.until && !g.keep {
			g.lapsed = g.lapsed || !g.exited
			g.end(k.until + k.config.KillAfter)
		}
		if g.exited {
			g.end(now + k.config.Grace)
		}
		if g.ending && now >= g.killAt {
			_ = unix.Kill(-g.pid, unix.SIGKILL)
			if g.killedAt == 0 {
				g.killedAt = now
			}
		}
	}
}

// isGone reports whether nobody of the group is left who could do anything. After
// KILL all are zombies for a moment, until they are reaped; those that stay so
// will not be waited for.
func (g *group) isGone(now time.Duration) bool {
	return !exists(g.pid) || g.killedAt != 0 && now >= g.killedAt+reapIn && onlyZombies(g.pid)
}

// exists reports whether the process group has any process, zombies included.
func exists(pgid int) bool { return unix.Kill(-pgid, 0) != unix.ESRCH }

func (k *keeper) endAll(killAt time.Duration) {
	for _, g := range k.groups {
		g.end(killAt)
	}
}

// end sends TERM, once, and sees to it that KILL follows no later than killAt.
func (g *group) end(killAt time.Duration) {
	if g.ending {
		g.killAt = min(g.killAt, killAt)
		return
	}
	g.ending, g.killAt, g.ended = true, killAt, !g.exited
	_ = unix.Kill(-g.pid, unix.SIGTERM)
	_ = unix.Kill(-g.pid, unix.SIGCONT) // a stopped process does not hear TERM
}

// pause is how long the guard may wait for events before it must look again.
func (k *keeper) pause(now time.Duration) time.Duration {
	if len(k.groups) == 0 {
		return time.Hour
	}
	pause := lookEvery
	for _, g := range k.groups {
		if g.ending {
			return endEvery
		}
		if !g.keep {
			pause = min(pause, k.until-now)
		}
	}
	return pause
}

// dispatch runs the guard process with the arguments of guardArgs.
func dispatch(args []string) int {
	err := func() error {
		config, err := parseGuardArgs(args)
		if err != nil {
			return err
		}
		conn, err := unixConn(os.NewFile(3, "worker"))
		if err != nil {
			return err
		}
		defer conn.Close()
		return serve(conn, config)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard process:", err)
		return 1
	}
	return 0
}

func guardArgs(c Config) []string {
	return []string{hiddenArg, c.KillAfter.String(), c.Grace.String()}
}

func parseGuardArgs(args []string) (c Config, err error) {
	if len(args) == 2 {
		if c.KillAfter, err = time.ParseDuration(args[0]); err == nil {
			c.Grace, err = time.ParseDuration(args[1])
		}
	}
	if len(args) != 2 || err != nil {
		return c, fmt.Errorf("arguments %q: this is started by a worker, not by hand", args)
	}
	return c, nil
}
