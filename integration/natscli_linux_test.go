package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// A shell runs the commands of the README. It has a terminal, because one of the commands needs one.
func TestNatsCommandsOfTheReadmeShowSlots(t *testing.T) {
	t.Parallel()
	_, missing := lookPath("nats")
	need(t, "the nats CLI in PATH", missing)
	s := newServedSite(t)
	file := s.jobs("sleep 1.5", `name: work, schedule: "* * * * * *", overlap: allow`)
	s.worker("w1", file)
	s.worker("w2", file)
	s.untilWork()
	slot := regexp.MustCompile(`work:20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	for _, command := range readmeCommands(t, "## Watching with the nats CLI") {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			shown := atTerminal(t, append(s.env(), "NATS_URL="+s.url, "TERM=dumb"), command)
			eventually(t, command+" to show a slot's ID", func() bool { return slot.MatchString(shown()) })
		})
	}
}

// untilWork waits until a slot waits or runs.
func (s *site) untilWork() {
	s.t.Helper()
	eventually(s.t, "a slot in the stream", func() bool {
		stream, err := s.js.Stream(s.t.Context(), "cronce_slots")
		return err == nil && stream.CachedInfo().State.Msgs > 0
	})
}

// readmeCommands returns the lines of the code block below a heading of the README.
func readmeCommands(t *testing.T, heading string) []string {
	t.Helper()
	_, section, _ := strings.Cut(string(filetest.Read(t, "../README.md")), heading+"\n")
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, _ = strings.Cut(block, "\n```")
	commands := strings.Split(block, "\n")
	if len(commands) < 4 {
		t.Fatalf("the README has the commands %q below %q, want four or more", commands, heading)
	}
	return commands
}

// atTerminal runs a shell command at a terminal of its own. shown returns what the terminal has shown so far.
func atTerminal(t *testing.T, env []string, command string) (shown func() string) {
	t.Helper()
	screen, terminal, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "exec "+command)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	var mu sync.Mutex
	var seen bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		for buf := make([]byte, 4096); ; {
			n, err := screen.Read(buf)
			mu.Lock()
			seen.Write(buf[:n])
			mu.Unlock()
			if err != nil {
				return // the last process at the terminal has ended
			}
		}
	}()
	shown = func() string {
		mu.Lock()
		defer mu.Unlock()
		return seen.String()
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-read
		screen.Close()
		if t.Failed() {
			t.Logf("%s showed:\n%s", command, shown())
		}
	})
	return shown
}

// openTerminal returns both ends of a new pseudo terminal.
func openTerminal() (screen, terminal *os.File, err error) {
	screen, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		screen.Close()
	}
	return screen, terminal, err
}
