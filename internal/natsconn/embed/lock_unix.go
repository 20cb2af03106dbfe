//go:build !windows

package embed

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// With noFollow, opening a symbolic link fails, and opening a named pipe does not block.
const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

// hasOtherNames reports whether the file has hard links.
func hasOtherNames(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink > 1
}

func tryLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errHeld
	}
	return err
}
