//go:build unix

package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// manager is the socket of a systemd.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	path string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &manager{t, conn, path}
}

// starts runs cronce as systemd does: with a watchdog of three seconds.
func (m *manager) starts(args ...string) *exec.Cmd {
	m.t.Helper()
	cmd := command(m.t, args...)
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=3000000")
	var log strings.Builder
	cmd.Stderr = &log
	begin(m.t, cmd)
	m.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if m.t.Failed() {
			m.t.Logf("%v:\n%s", args, &log)
		}
	})
	return cmd
}

// hears waits for a message that has the line, or a line that begins with it if it ends with
// "...". It returns the lines of all messages up to there.
func (m *manager) hears(line string) (all []string) {
	m.t.Helper()
	prefix, isPrefix := strings.CutSuffix(line, "...")
	if err := m.conn.SetReadDeadline(time.Now().Add(natstest.Patience)); err != nil {
		m.t.Fatal(err)
	}
	for buffer := make([]byte, 1<<16); ; {
		n, err := m.conn.Read(buffer)
		if err != nil {
			m.t.Fatalf("no message %q: %v; before it %q", line, err, all)
		}
		found := false
		for got := range strings.Lines(string(buffer[:n])) {
			got = strings.TrimSuffix(got, "\n")
			all = append(all, got)
			found = found || got == line || isPrefix && strings.HasPrefix(got, prefix)
		}
		if found {
			return all
		}
	}
}

func send(t *testing.T, cmd *exec.Cmd, s os.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func TestServerReportsToSystemd(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	server := m.starts("server", "--listen", "127.0.0.1:0", "--store", filepath.Join(t.TempDir(), "store"))
	m.hears("READY=1")
	m.hears("WATCHDOG=1")
	send(t, server, syscall.SIGTERM)
	m.hears("STOPPING=1")
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}

func has(lines []string, part string) bool {
	return strings.Contains(strings.Join(lines, "\n")+"\n", part)
}

func TestNodeReportsToSystemd(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	dir := t.TempDir()
	file, marks := filepath.Join(dir, "jobs.yaml"), filepath.Join(dir, "marks")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("version: 1\njobs:\n  - {name: tick, schedule: '* * * * * *', action: {exec: [/bin/sh, -c, 'env >>" + marks + "']}}\n")

	// The server does not answer yet: the start takes as long as that lasts.
	proxy := natstest.NewProxy(t, natstest.Run(t).ClientURL())
	proxy.Cut()
	node := m.starts("run", "-f", file, "--server", proxy.URL())
	if before := m.hears("EXTEND_TIMEOUT_USEC=60000000"); has(before, "READY=1\n") {
		t.Errorf("ready without a broker: %q", before)
	}
	proxy.Heal()
	if at := m.hears("READY=1"); at[len(at)-1] != "WATCHDOG=1" && !has(at, "STATUS=working\n") {
		t.Errorf("reported at the start: %q", at)
	}

	// A broker that is away is shown, and restarts nothing.
	proxy.Cut()
	m.hears("STATUS=waiting: broker: not connected to NATS")
	m.hears("WATCHDOG=1")
	if away := m.hears("WATCHDOG=1"); has(away, "STATUS=working\n") {
		t.Errorf("reported while the broker was away: %q", away)
	}
	proxy.Heal()
	m.hears("STATUS=working")

	write("version: 1\njobs:\n  - {name: tick, schedule: wrong}\n")
	send(t, node, syscall.SIGHUP)
	m.hears("RELOADING=1")
	m.hears("READY=1")
	if failed := m.hears("STATUS=working; the last reload failed: ..."); !has(failed, "wrong") {
		t.Errorf("reported of a wrong file: %q", failed)
	}

	natstest.Eventually(t, "a command has run", func() bool {
		env, err := os.ReadFile(marks)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if strings.Contains(string(env), "NOTIFY_SOCKET=") || strings.Contains(string(env), "WATCHDOG_USEC=") {
			t.Fatalf("the command could report in the name of the node: %s", env)
		}
		return strings.Contains(string(env), "CRONCE_SLOT_ID=")
	})
	send(t, node, syscall.SIGTERM)
	m.hears("STOPPING=1")
	if err := node.Wait(); err != nil {
		t.Error(err)
	}
}
