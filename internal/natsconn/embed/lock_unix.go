//go:build !windows

package embed

import (
	"errors"
	"fmt"
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

// otherWriters says who may write to a directory besides its owner and this process. Empty: no one but root.
func otherWriters(dir os.FileInfo) string {
	stat, ok := dir.Sys().(*syscall.Stat_t)
	switch mode := dir.Mode().Perm(); {
	case mode&0o002 != 0:
		return "every user"
	case ok && mode&0o020 != 0 && int(stat.Gid) != os.Getgid():
		return fmt.Sprintf("group %d", stat.Gid)
	case ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Sprintf("user %d, who owns it", stat.Uid)
	}
	return ""
}

func tryLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errHeld
	}
	return err
}
