package embed

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// noFollow has no flags on Windows: openLock checks the file before it opens it.
const noFollow = 0

// hasOtherNames returns false, because os.FileInfo has no link count on Windows.
func hasOtherNames(os.FileInfo) bool { return false }

// otherWriters returns nothing, because os.FileInfo has no access lists on Windows.
func otherWriters(os.FileInfo) string { return "" }

// tryLock locks one byte far behind the end of the file: locks on Windows are
// mandatory, and other processes must be able to read the holder.
func tryLock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errHeld
	}
	return err
}
