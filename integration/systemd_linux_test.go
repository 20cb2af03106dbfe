package integration

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

const units = "../deploy/systemd"

// systemdUnits returns the paths of the units that the packages install.
func systemdUnits(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(units + "/*.service")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	return paths
}

// needCommand skips the test if a program is missing.
func needCommand(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		lacking(t, name, err.Error())
	}
}

// lacking skips the test because a program cannot be used. With CRONCE_TEST_NO_SKIP=1 the test fails, unless
// CRONCE_TEST_WITHOUT names the program. .ci/run names there, and in its last lines, what it could not install.
func lacking(t *testing.T, name, why string) {
	t.Helper()
	if slices.Contains(strings.Fields(os.Getenv("CRONCE_TEST_WITHOUT")), name) {
		t.Skipf("needs %s, which CRONCE_TEST_WITHOUT excludes: %s", name, why)
	}
	need(t, name, why)
}

// Every directive is one that systemd knows, and every value is valid.
func TestUnitsPassSystemdAnalyzeVerify(t *testing.T) {
	t.Parallel()
	needCommand(t, "systemd-analyze")
	dir := t.TempDir()
	for _, path := range systemdUnits(t) {
		text := strings.ReplaceAll(string(filetest.Read(t, path)), "/usr/bin/cronce", program(t, cronce))
		copied := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", copied).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", filepath.Base(path), err, out)
		}
	}
}

// The exposure level is 0 for a unit that may do nothing, and 10 for one without a sandbox. The threshold is in tenths.
func TestUnitsAreSandboxed(t *testing.T) {
	t.Parallel()
	needCommand(t, "systemd-analyze")
	for _, path := range systemdUnits(t) {
		out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=20", path).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Overall exposure level for "+filepath.Base(path)) {
			t.Errorf("%s is exposed more than 2.0: %v\n%s", filepath.Base(path), err, out)
		}
	}
}

// No status of a failure may be excluded: after a panic, or if the watchdog ends a process, its status is 2, as for a
// wrong configuration.
func TestUnitsAreStartedAgainAfterAnyFailure(t *testing.T) {
	t.Parallel()
	for _, path := range systemdUnits(t) {
		text := string(filetest.Read(t, path))
		if !strings.Contains(text, "\nRestart=on-failure\n") || strings.Contains(text, "RestartPreventExitStatus=") || strings.Contains(text, "SuccessExitStatus=") {
			t.Errorf("%s does not restart a process that panicked", filepath.Base(path))
		}
	}
}

// The commands of the units start as systemd starts them, with the files of a package in
// place, and report that they are ready.
func TestUnitsCommandsReportReady(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	s.write("jobs.yaml", "version: 1\njobs:\n  - {name: tick, schedule: '@hourly', action: {exec: [/bin/true]}}\n")
	s.command(0, "setup") // the first node would do it, too
	for _, path := range systemdUnits(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".service")
		t.Run(name, func(t *testing.T) {
			_, command, found := strings.Cut(string(filetest.Read(t, path)), "\nExecStart=/usr/bin/cronce ")
			command, _, _ = strings.Cut(command, "\n")
			if !found {
				t.Fatal("the unit does not start /usr/bin/cronce")
			}
			var args []string
			for _, arg := range strings.Fields(command) {
				if !strings.HasPrefix(arg, "$") { // a variable with flags of the administrator
					args = append(args, inside(s, arg))
				}
			}
			if args[0] == "server" || args[0] == "ui" {
				args = append(args, "--listen", "127.0.0.1:0") // the default may be in use here
			}
			socket := filepath.Join(shortDir(t), "notify")
			conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			s.environment = []string{"NOTIFY_SOCKET=" + socket}
			p := s.start(name, args...)
			if err := conn.SetReadDeadline(time.Now().Add(natstest.Patience)); err != nil {
				t.Fatal(err)
			}
			for buffer := make([]byte, 1<<16); ; {
				n, err := conn.Read(buffer)
				if err != nil {
					t.Fatalf("%v does not report READY: %v", args, err)
				}
				if strings.Contains(string(buffer[:n]), "READY=1\n") {
					break
				}
			}
			term(p)
		})
	}
}

// inside replaces a path of the installed package by one in the site, and a port by any free one.
func inside(s *site, arg string) string {
	for _, dir := range []string{"/etc/cronce/", "/var/lib/"} {
		if name, ok := strings.CutPrefix(arg, dir); ok {
			return s.path(name)
		}
	}
	if host, _, err := net.SplitHostPort(arg); err == nil {
		return net.JoinHostPort(host, "0")
	}
	return arg
}

// shortDir returns a new folder with a short path, as sockets need.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
