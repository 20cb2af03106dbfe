//go:build unix

package torture

import (
	"os"
	"os/exec"
	"syscall"
)

// Supported says why torture cannot work on this system. Here it can.
func Supported() error { return nil }

const (
	stopSignal = syscall.SIGSTOP
	contSignal = syscall.SIGCONT
	termSignal = syscall.SIGTERM

	hangupSignal = syscall.SIGHUP
)

var _ os.Signal = stopSignal

// ownGroup keeps a Ctrl-C at the terminal from the child: its end is ours to say.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
