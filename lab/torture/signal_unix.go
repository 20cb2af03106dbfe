//go:build unix

package torture

import (
	"os"
	"os/exec"
	"syscall"
)

// Supported returns an error if torture does not work on this system.
func Supported() error { return nil }

const (
	stopSignal = syscall.SIGSTOP
	contSignal = syscall.SIGCONT
	termSignal = syscall.SIGTERM

	hangupSignal = syscall.SIGHUP
)

var _ os.Signal = stopSignal

// ownGroup puts the child into a process group of its own, so that a Ctrl-C at the terminal does
// not end it. This process ends it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
