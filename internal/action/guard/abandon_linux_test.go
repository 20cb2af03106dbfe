package guard

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A guard can be killed between the start of a command and its report.
func TestACommandWhoseGuardDiedBeforeItReportedTheStartEnds(t *testing.T) {
	t.Parallel()
	pid, other := startFamily(t, "COMMAND=abandoned"), startFamily(t, "COMMAND=another")
	reports := make(chan report, 1)
	reports <- report{Kind: lost}
	l := &link{err: errors.New("killed")}
	if err := l.follow(t.Context(), 1, Command{Mark: []string{"COMMAND=abandoned"}}, reports); err == nil {
		t.Error("no error")
	}
	if !onlyZombies(pid) {
		t.Error("a process of the command is left")
	}
	if onlyZombies(other) {
		t.Error("a command with another mark was killed")
	}
}

// startFamily starts a group of two processes and returns its number.
func startFamily(t *testing.T, mark string) int {
	t.Helper()
	c := exec.Command("/bin/sh", "-c", "sleep 300 & echo started; wait")
	c.Env = append(os.Environ(), mark)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		killGroup(c.Process.Pid)
		_ = c.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return c.Process.Pid
}
