package integration

import (
	"cmp"
	"os/exec"
	"runtime"
	"syscall"
)

// With Pdeathsig, the kernel kills a process when the thread that started it ends. So one thread, which
// lives as long as the test binary, starts all processes.
func init() {
	type request struct {
		*exec.Cmd
		started chan<- error
	}
	requests := make(chan request)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.started <- r.Start()
		}
	}()
	begin = func(cmd *exec.Cmd) error {
		attr := *cmp.Or(cmd.SysProcAttr, &syscall.SysProcAttr{})
		attr.Pdeathsig = syscall.SIGKILL
		cmd.SysProcAttr = &attr
		started := make(chan error)
		requests <- request{cmd, started}
		return <-started
	}
}
