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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/fleet/boot"
)

const (
	// checkEvery is how often the clock is read. It bounds how late the end of a suspend is noticed.
	checkEvery = 100 * time.Millisecond

	// endEvery is how often ending groups are checked. On systems where another process
	// adopts orphans, the guard is not notified when they end.
	endEvery = 10 * time.Millisecond

	// reapIn is how long the parents of killed processes have to reap them.
	reapIn = 500 * time.Millisecond
)

// serve is the main function of the guard process. It runs commands for the worker at the
// other end of conn until the worker is gone, and then ends what is left.
func serve(conn *net.UnixConn, config Config) error {
	adoptOrphans()
	// Supervisors often signal the whole cgroup of a worker, or all processes of its name.
	// The guard must stay until its commands have ended. The signals are caught and not
	// ignored, because commands would inherit that they are ignored.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)

	k := newKeeper(config, newStarter(forkExec))
	go k.starter.run()
	go func() {
		// The worker may have stopped reading. An error means that it is gone, which
		// the receiver notices.
		for reports := newEncoder(conn); ; {
			_ = reports.encode(k.reports.take())
		}
	}()
	requests := make(chan incoming)
	var broken error
	go func() {
		broken = receive(conn, requests)
		close(requests)
	}()
	timer := time.NewTimer(0)
	for !k.orphaned || len(k.groups) > 0 || len(k.starting) > 0 {
		select {
		case in, ok := <-requests:
			if ok {
				k.handle(in)
			} else {
				requests = nil
				k.orphan(boot.Now() + config.KillAfter)
			}
		case r := <-k.starter.results:
			k.started(r)
		case <-children:
		case <-timer.C:
		}
		k.reap()
		k.enforce(boot.Now())
		timer.Reset(k.pause(boot.Now()))
	}
	return broken
}

// incoming is a request with the files that came with it.
type incoming struct {
	request
	files []int
}

// receive sends the requests of the worker to the channel until the worker is gone.
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
			return nil // the worker is gone; ECONNRESET if it had not read all reports
		}
		if err != nil {
			return err
		}
		to <- in
	}
}

// keeper is the state of the guard process. One goroutine uses it. It never blocks, neither
// on a worker that does not read nor on a command that does not start.
type keeper struct {
	config   Config
	until    time.Duration
	orphaned bool
	groups   map[uint64]*group
	reports  *queue[report]

	// starting are the commands that the starter is about to start. Such a command may be
	// reaped before its start is reported. While any is pending, reaped holds the exits of
	// unknown processes.
	starter  *starter
	starting map[uint64]*start
	reaped   map[int]syscall.WaitStatus

	table  map[int]process // the process table of the system
	readAt time.Duration   // when table was read
}

func newKeeper(config Config, s *starter) *keeper {
	return &keeper{
		config: config, groups: map[uint64]*group{}, reports: newQueue[report](),
		starter: s, starting: map[uint64]*start{}, reaped: map[int]syscall.WaitStatus{},
	}
}

// group is the process group of one command. Its number cannot be given to another process
// before the leader is reaped and all other members have left.
type group struct {
	pid    int
	mark   []string
	keep   bool // it may run beyond the deadline
	exited bool // the leader has exited and is reaped
	status syscall.WaitStatus

	ending   bool          // TERM was sent
	killAt   time.Duration // if ending
	killedAt time.Duration // when KILL was first sent; zero if not yet

	// strays are the processes of an ended command that have left its group, with their
	// start times.
	strays map[int]string

	ended, lapsed bool // as in report
}

func (k *keeper) handle(in incoming) {
	// Commands that ran past the deadline must end, even if this request renews it. reap comes
	// first, because a command that has exited by now did not run past it.
	k.reap()
	k.enforce(boot.Now())
	k.until = max(k.until, in.Until)
	if !k.orphaned {
		k.starter.until.Store(int64(k.until))
	}
	switch {
	case in.Start != nil:
		k.starting[in.ID] = in.Start
		k.starter.waiting.put(in)
	case in.End && k.groups[in.ID] != nil:
		k.end(k.groups[in.ID], boot.Now()+k.config.Grace)
	case in.End && k.starting[in.ID] != nil:
		k.starting[in.ID].killAt = boot.Now() + k.config.Grace
	}
}

// started records the result of a start. If the end of the command was requested meanwhile,
// the command ends at once.
func (k *keeper) started(r startResult) {
	start := k.starting[r.id]
	delete(k.starting, r.id)
	k.reports.put(r.report())
	if !r.refused && r.err == nil {
		g := &group{pid: r.pid, keep: start.Keep, mark: start.Mark, strays: map[int]string{}}
		g.status, g.exited = k.reaped[r.pid]
		k.groups[r.id] = g
		if start.killAt > 0 {
			k.end(g, start.killAt)
		}
	}
	if len(k.starting) == 0 {
		clear(k.reaped)
	}
}

// orphan ends all commands because the worker is gone.
func (k *keeper) orphan(killAt time.Duration) {
	k.orphaned = true
	k.starter.until.Store(0)
	for _, g := range k.groups {
		k.end(g, killAt)
	}
	for _, s := range k.starting {
		s.killAt = killAt
	}
}

// reap collects all children that have exited, commands and adopted orphans.
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
		known := false
		for _, g := range k.groups {
			if g.pid == pid && !g.exited {
				g.exited, g.status, known = true, status, true
			}
		}
		if !known && len(k.starting) > 0 {
			k.reaped[pid] = status
		}
	}
}

// enforce sends the signals that are due, and reports and removes groups that have ended.
func (k *keeper) enforce(now time.Duration) {
	if now >= k.readAt+strayEvery && k.isEnding() {
		k.findStrays(now)
	}
	for id, g := range k.groups {
		if g.exited && g.isGone(now) {
			delete(k.groups, id)
			k.reports.put(report{ID: id, Kind: gone, Status: g.status, Ended: g.ended, Lapsed: g.lapsed})
			continue
		}
		if now >= k.until && !g.keep {
			g.lapsed = g.lapsed || !g.exited
			k.end(g, k.until+k.config.KillAfter)
		}
		if g.exited {
			k.end(g, now+k.config.Grace)
		}
		if g.ending && now >= g.killAt {
			g.signal(unix.SIGKILL)
			if g.killedAt == 0 {
				g.killedAt = now
			}
		}
	}
}

// isEnding reports whether the guard is ending a command.
func (k *keeper) isEnding() bool {
	for _, g := range k.groups {
		if g.ended {
			return true
		}
	}
	return false
}

// isGone reports whether no process of the command is left that can act. After KILL all of
// them are zombies until they are reaped. Those that are not reaped within reapIn do not
// count.
func (g *group) isGone(now time.Duration) bool {
	killed := g.killedAt != 0 && now >= g.killedAt+reapIn
	return (len(g.strays) == 0 || killed) && (!exists(g.pid) || killed && onlyZombies(g.pid))
}

// exists reports whether the process group has any process, zombies included.
func exists(pgid int) bool { return unix.Kill(-pgid, 0) != unix.ESRCH }

// end sends TERM once, and schedules KILL for killAt at the latest. It first looks for
// processes that have left the group: once their parents have ended, only the mark
// identifies them.
func (k *keeper) end(g *group, killAt time.Duration) {
	if g.ending {
		g.killAt = min(g.killAt, killAt)
		return
	}
	g.ending, g.killAt, g.ended = true, killAt, !g.exited
	if g.ended {
		k.findStrays(boot.Now())
	}
	_ = unix.Kill(-g.pid, unix.SIGTERM)
	_ = unix.Kill(-g.pid, unix.SIGCONT) // a stopped process does not handle TERM
}

// pause returns how long the guard may wait for events before it must check the clock.
func (k *keeper) pause(now time.Duration) time.Duration {
	if len(k.groups) == 0 {
		return time.Hour
	}
	pause := checkEvery
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
		renameProcess()
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
		return c, fmt.Errorf("invalid arguments %q: only a worker starts this process", args)
	}
	return c, nil
}
