//go:build linux || darwin

package embed

import "syscall"

// freeSpace returns how many bytes this user may still write to the disk of dir.
func freeSpace(dir string) (free uint64, known bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, false
	}
	return uint64(fs.Bavail) * uint64(fs.Bsize), true
}
