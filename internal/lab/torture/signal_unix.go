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

// ownGroup keeps a Ctrl-C at the terminal from the child: this process ends it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
