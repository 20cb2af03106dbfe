package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/text/printable"
)

const (
	// startExtension is how long systemd waits for the next message of a process that is
	// still starting. A node may wait for its broker for hours, so no fixed limit is right.
	startExtension = time.Minute

	// steadyTick is how often the state is reported if systemd sets no watchdog.
	steadyTick = 10 * time.Second

	// changeTick is how often, at least, the state is checked for a change.
	changeTick = 5 * time.Second

	// startTick is how often the state is checked until the process is ready, and while it is
	// stuck.
	startTick = 200 * time.Millisecond
)

// supervisor reports the state of this process to systemd, as sd_notify(3) describes. It
// does nothing if systemd did not start the process with Type=notify.
//
//   - READY is sent when the checks of /readyz hold for the first time. Until then each
//     message extends the time limit of the start.
//   - WATCHDOG is sent while the check of /healthz holds. It does not depend on the broker:
//     a restart would end handlers that may finish, and would bring no broker back.
//   - If a check never returns, as in a deadlock, no message is sent, and systemd restarts the
//     process.
type supervisor struct {
	socket   string
	watchdog time.Duration // 0: systemd expects no WATCHDOG
	started  atomic.Bool   // READY was sent

	// changed wakes run, so that it reports a reload at once.
	changed chan struct{}

	// notReloaded is the error of the last reload, if it failed.
	notReloaded atomic.Pointer[error]
}

// newSupervisor takes systemd's variables out of the environment. Commands of jobs inherit the
// environment, and must not report in the name of this process.
func newSupervisor(a *base.App) *supervisor {
	s := &supervisor{socket: a.Getenv("NOTIFY_SOCKET"), changed: make(chan struct{}, 1)}
	pid := a.Getenv("WATCHDOG_PID")
	if micros, err := strconv.ParseInt(a.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		s.watchdog = time.Duration(micros) * time.Microsecond
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name) // it fails only for invalid names
	}
	return s
}

// supervise reports what h says until stop is called. When ctx ends it reports that the
// process is stopping.
func supervise(ctx context.Context, a *base.App, h *health) (s *supervisor, stop func()) {
	s = newSupervisor(a)
	if s.socket == "" {
		return s, func() {}
	}
	if err := s.send("STATUS=starting"); err != nil {
		a.Log.Warn("cannot report to systemd", "socket", s.socket, "error", err)
	}
	return s, background(ctx, func(ctx context.Context) { s.run(ctx, a, h) })
}

func (s *supervisor) run(ctx context.Context, a *base.App, h *health) {
	var wasStuck bool
	var last string
	var next time.Time // when an unchanged state is reported again
	for {
		ready, live := h.ask()
		status, isReady := s.status(ready, live), firstFailure(ready) == nil
		if now := time.Now(); status != last || now.After(next) || isReady && !s.started.Load() {
			_ = s.send(s.messages(isReady, live, status)...) // systemd notices what is missing
			if isReady {
				s.started.Store(true)
			}
			last, next = status, now.Add(s.tick())
		}
		if live != nil && !wasStuck && s.watchdog > 0 {
			a.Log.Error("process is stuck; systemd will restart it", "error", live, "delay", s.watchdog)
		}
		wasStuck = live != nil
		wait := min(s.tick(), changeTick)
		if !s.started.Load() || wasStuck {
			wait = min(wait, startTick)
		}
		select {
		case <-ctx.Done():
			_ = s.send("STOPPING=1", "STATUS=stopping")
			return
		case <-s.changed:
		case <-time.After(wait):
		}
	}
}

// tick is the least time between two messages about an unchanged state. It is a third of the
// watchdog's limit, so that a late message restarts nothing.
func (s *supervisor) tick() time.Duration {
	if s.watchdog > 0 {
		return s.watchdog / 3
	}
	return steadyTick
}

// messages returns the lines that describe the state.
func (s *supervisor) messages(ready bool, live error, status string) []string {
	lines := []string{"STATUS=" + status}
	switch {
	case s.started.Load():
	case ready:
		lines = append(lines, "READY=1")
	default:
		lines = append(lines, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", startExtension.Microseconds()))
	}
	if live == nil && s.watchdog > 0 {
		lines = append(lines, "WATCHDOG=1")
	}
	return lines
}

// status is what "systemctl status" shows.
func (s *supervisor) status(ready []replica.Check, live error) string {
	text := "working"
	if failed := firstFailure(ready); failed != nil {
		text = fmt.Sprintf("waiting: %s: %v", failed.Name, failed.Err)
	}
	if live != nil {
		text = fmt.Sprintf("stuck: %v", live)
	}
	if err := s.notReloaded.Load(); err != nil && *err != nil {
		text += fmt.Sprintf("; the last reload failed: %v", *err)
	}
	return printable.Text(text)
}

func firstFailure(checks []replica.Check) *replica.Check {
	for _, c := range checks {
		if c.Err != nil && !c.Informational {
			return &c
		}
	}
	return nil
}

// reload reports that the process reads its file while f runs. A process that is still
// starting must not report READY for that.
func (s *supervisor) reload(f func() error) error {
	report := s.started.Load()
	if report {
		_ = s.send("RELOADING=1")
	}
	err := f()
	s.notReloaded.Store(&err)
	if report {
		_ = s.send("READY=1")
		core.TrySend(s.changed, struct{}{})
	}
	return err
}

// send writes one message. Systemd does not answer.
func (s *supervisor) send(lines ...string) error {
	if s.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	var text []byte
	for _, line := range lines {
		text = append(append(text, strings.ReplaceAll(line, "\n", "; ")...), '\n')
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // the write reports a closed socket
	_, err = conn.Write(text)
	return errors.Join(err, conn.Close())
}
