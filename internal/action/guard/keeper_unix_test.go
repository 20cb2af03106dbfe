//go:build linux || darwin

package guard

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/fleet/boot"
)

// A worker that is stopped reads no reports. Its commands end with its lease nevertheless, however
// many there are.
func TestCommandsEndWithTheLeaseWhenTheWorkerReadsNothing(t *testing.T) {
	t.Parallel()
	worker, theirs, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(int(theirs.Fd()), unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err != nil { // the kernel raises it to its minimum
		t.Fatal(err)
	}
	guard := exec.Command(os.Args[0], guardArgs(Config{KillAfter: 100 * time.Millisecond}.withDefaults())...)
	guard.Env = append(os.Environ(), inGuard+"=1")
	guard.ExtraFiles = []*os.File{theirs}
	if err := guard.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() {
		worker.Close()
		_ = guard.Wait()
	})
	if err := worker.SetWriteDeadline(time.Now().Add(2 * time.Minute)); err != nil { // a guard that stops reading blocks the writes
		t.Fatal(err)
	}
	const n = 60
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	requests := newEncoder(worker)
	until := boot.Now() + time.Hour
	for i := range n {
		c := start{Path: "/bin/sh", Args: []string{"sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"}, Env: os.Environ()}
		if err := requests.encode(request{Until: until, ID: uint64(i + 1), Start: &c}, null, write); err != nil {
			t.Fatal(err)
		}
	}
	// Some end by themselves: their reports fill the socket.
	for i := range 4 * n {
		c := start{Path: "/bin/true", Args: []string{"true"}}
		if err := requests.encode(request{Until: until, ID: uint64(n + i + 1), Start: &c}, null, null); err != nil {
			t.Fatal(err)
		}
	}
	// The socket is full of reports now. Only a guard that does not wait for the worker to read them
	// receives further requests.
	write.Close()
	for i := range n {
		if err := requests.encode(request{ID: uint64(i + 1), End: true}); err != nil {
			t.Fatal(err)
		}
	}
	all := make(chan string)
	go func() {
		var b strings.Builder
		buf := make([]byte, 4096)
		for {
			k, err := read.Read(buf)
			b.Write(buf[:k])
			if err != nil { // all ends are closed: the commands are gone
				all <- b.String()
				return
			}
		}
	}()
	select {
	case <-all:
	case <-time.After(2 * time.Minute):
		t.Error("commands are left, though they were to end")
	}
}

// fakeCommand starts a process in place of one that the starter would start. The process already
// ignores TERM when fakeCommand returns, so only KILL ends it.
func fakeCommand(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // like a command's, but without Pdeathsig
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// A file system that hangs blocks a start. Running commands still end in time, and so does a command
// that starts too late.
func TestStartThatHangsHoldsNoEndUp(t *testing.T) {
	t.Parallel()
	slow, fast := fakeCommand(t), fakeCommand(t)
	hangs, release := make(chan bool), make(chan bool)
	k := newKeeper(Config{KillAfter: time.Millisecond}.withDefaults(), newStarter(func(in incoming) (int, error) {
		if in.ID == 2 {
			hangs <- true
			<-release
			return slow.Process.Pid, nil
		}
		return fast.Process.Pid, nil
	}))
	go k.starter.run()
	until := boot.Now() + time.Hour
	k.handle(incoming{request: request{Until: until, ID: 1, Start: &start{}}})
	k.started(<-k.starter.results)
	k.handle(incoming{request: request{ID: 2, Start: &start{}}}) // would not return if it waited for the start
	k.handle(incoming{request: request{ID: 3, Start: &start{}}})
	k.handle(incoming{request: request{ID: 2, End: true}})
	k.enforce(until + time.Second)
	if err := fast.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the command that ran: %v", err)
	}
	<-hangs
	k.starter.until.Store(0) // the lease is over
	release <- true
	k.started(<-k.starter.results)
	if !k.groups[2].ending {
		t.Error("a command whose end was asked for while it started does not end")
	}
	k.enforce(until + 2*time.Second)
	if err := slow.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the command that started too late: %v", err)
	}
	k.starter.waiting.put(incoming{})
	if r := <-k.starter.results; r.id != 3 || !r.refused {
		t.Errorf("what was to start after that: %+v", r)
	}
}
