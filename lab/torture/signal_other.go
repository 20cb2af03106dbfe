//go:build !unix

package torture

import (
	"errors"
	"os"
	"os/exec"
)

// Supported returns an error if torture does not work on this system.
func Supported() error {
	return errors.New("torture stops and continues processes, which this system cannot do: run it on Linux, macOS or a BSD; the servers may run anywhere")
}

var stopSignal, contSignal, termSignal, hangupSignal = os.Kill, os.Kill, os.Kill, os.Kill

func ownGroup(*exec.Cmd) {}
