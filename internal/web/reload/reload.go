// Package reload keeps values that are read from files, such as certificates and
// passwords, and reads them again when a file changes.
package reload

import (
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// interval limits how often the files are compared with what was read.
const interval = time.Second

// Value is a value that was read from files. It is safe for concurrent use.
type Value[T any] struct {
	paths []string
	read  func() (T, error)
	log   *slog.Logger

	mu      sync.Mutex
	value   T
	seen    []fs.FileInfo // the state of the files when they were last read, even if that failed
	checked time.Time     // when the files were last compared with seen
	every   time.Duration // interval, except in tests
}

// New reads the value. It returns the error of read, if there is one.
func New[T any](log *slog.Logger, read func() (T, error), paths ...string) (*Value[T], error) {
	v := &Value[T]{paths: paths, read: read, log: log, every: interval, checked: time.Now()}
	v.seen = v.stat() // before reading, so that a later change differs from it
	var err error
	v.value, err = read()
	return v, err
}

// Get returns the value. If a file has changed, it reads the value again; if that fails, it
// logs the error once and returns the old value.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.checked) < v.every {
		return v.value
	}
	v.checked = time.Now()
	now := v.stat()
	if slices.EqualFunc(v.seen, now, same) {
		return v.value
	}
	v.seen = now
	fresh, err := v.read()
	if err != nil {
		v.log.Error("file not reloaded; keeping what was read before", "files", v.paths, "error", err)
		return v.value
	}
	v.value = fresh
	v.log.Info("file reloaded", "files", v.paths)
	return v.value
}

// stat describes the files. The description of a file that cannot be read is nil.
func (v *Value[T]) stat() []fs.FileInfo {
	infos := make([]fs.FileInfo, len(v.paths))
	for i, path := range v.paths {
		if info, err := os.Stat(path); err == nil {
			infos[i] = info
		}
	}
	return infos
}

// same reports whether two descriptions are of one file that has not changed.
func same(x, y fs.FileInfo) bool {
	if x == nil || y == nil {
		return x == y
	}
	return os.SameFile(x, y) && x.Size() == y.Size() && x.Mode() == y.Mode() && x.ModTime().Equal(y.ModTime())
}
