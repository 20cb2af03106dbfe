//go:build unix

package serve

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// listen opens the socket of a systemd.
func listen(t *testing.T) (conn *net.UnixConn, path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "notify")
	conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, path
}

func receive(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	buffer := make([]byte, 1<<16)
	if err := conn.SetReadDeadline(time.Now().Add(natstest.Patience)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}

func appIn(env map[string]string) *base.App {
	return &base.App{Log: slog.New(slog.DiscardHandler), Getenv: func(name string) string { return env[name] }}
}

func TestWatchdogIsServedOnlyWhileTheProcessIsLive(t *testing.T) {
	t.Parallel()
	conn, path := listen(t)
	var isStuck atomic.Bool
	var h health
	h.set(func() ([]replica.Check, error) {
		if isStuck.Load() {
			return nil, errors.New("nothing\nturns")
		}
		return []replica.Check{{Name: "queue", Err: errors.New("shown only"), Informational: true}}, nil
	})
	_, stop := supervise(t.Context(), appIn(map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "300000"}), &h)
	defer stop()
	for !strings.Contains(receive(t, conn), "READY=1\nWATCHDOG=1\n") {
	}
	isStuck.Store(true)
	stuck := receive(t, conn)
	for !strings.Contains(stuck, "stuck") {
		stuck = receive(t, conn)
	}
	if again := receive(t, conn); stuck != "STATUS=stuck: nothing; turns\n" || again != stuck {
		t.Errorf("a stuck process reports %q, then %q", stuck, again)
	}
	isStuck.Store(false)
	for !strings.Contains(receive(t, conn), "STATUS=working\nWATCHDOG=1\n") {
	}
}

func TestWatchdogOfAnotherProcessIsNotServed(t *testing.T) {
	t.Parallel()
	for pid, want := range map[string]time.Duration{"": time.Second, strconv.Itoa(os.Getpid()): time.Second, "1": 0} {
		s := newSupervisor(appIn(map[string]string{"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": pid}))
		if s.watchdog != want {
			t.Errorf("WATCHDOG_PID=%q: the limit is %v, want %v", pid, s.watchdog, want)
		}
	}
}

func TestReloadBeforeTheStartIsCompleteDoesNotReportReady(t *testing.T) {
	t.Parallel()
	conn, path := listen(t)
	s := newSupervisor(appIn(map[string]string{"NOTIFY_SOCKET": path}))
	if err := s.reload(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.send("STATUS=the next message"); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, conn); got != "STATUS=the next message\n" {
		t.Errorf("reported %q", got)
	}
}
