package embed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const lockName = "cronce.lock"

// holder is the content of the lock file: the process that holds the lock. Operators read
// it, and members recognise their server by it (see the package comment). The lock itself
// is the kernel's.
type holder struct {
	PID    int    `json:"pid"`
	Listen string `json:"listen"`
	Server string `json:"server"`
}

// lockedError means that another process holds the lock.
type lockedError struct {
	store string
	holder
}

func (e *lockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("store %s is in use by another process", e.store)
	}
	return fmt.Sprintf("store %s is in use by process %d, which serves on %s", e.store, e.PID, e.Listen)
}

// errHeld is the error of tryLock if another process holds the lock.
var errHeld = errors.New("lock is held")

// storeLock is the held lock on a store.
type storeLock struct {
	file *os.File
	// fresh means that the store's directory did not exist before.
	fresh bool
}

// lockStore creates the store's directory if it does not exist, and takes its lock. The
// error is a *lockedError if another process holds it.
func lockStore(store string) (*storeLock, error) {
	_, err := os.Stat(store)
	fresh := errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(store, 0o700); err != nil {
		return nil, storeError(store, err)
	}
	path := filepath.Join(store, lockName)
	for {
		f, err := openLock(path, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return nil, storeError(store, err)
		}
		if err := tryLock(f); err != nil {
			f.Close()
			if errors.Is(err, errHeld) {
				h, _ := readHolder(store)
				return nil, &lockedError{store, h}
			}
			return nil, storeError(store, fmt.Errorf("lock %s: %w", path, err))
		}
		// Another process may have removed the file, in discard, between our open and
		// our lock. Then the lock protects nothing.
		if sameFile(f, path) {
			return &storeLock{f, fresh}, nil
		}
		f.Close()
	}
}

// openLock opens the lock file. It must be a regular file with only this name: another user with
// write access to the directory could have linked it to a file that the process then overwrites.
func openLock(path string, flags int) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: not a regular file: remove it", path)
	}
	f, err := os.OpenFile(path, flags|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || hasOtherNames(info)) {
		err = fmt.Errorf("open %s: not a regular file, or it has hard links: remove it", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func storeError(store string, err error) error {
	return fmt.Errorf("cannot use store %s: %w; name another one with --store DIR", store, err)
}

func sameFile(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, named)
}

// describe writes the holder to the lock file.
func (l *storeLock) describe(h holder) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(append(data, '\n'), 0)
	return err
}

func (l *storeLock) release() error { return l.file.Close() }

// discard releases the lock. If lockStore has created the store, discard removes it, unless it has
// other files by now.
func (l *storeLock) discard() {
	if l.fresh {
		os.Remove(l.file.Name())
	}
	l.file.Close()
	if l.fresh {
		os.Remove(filepath.Dir(l.file.Name()))
	}
}

// readHolder reads the current or last holder of the store's lock. Right after the
// lock was taken the file may still be empty.
func readHolder(store string) (holder, error) {
	f, err := openLock(filepath.Join(store, lockName), os.O_RDONLY)
	if err != nil {
		return holder{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return holder{}, err
	}
	var h holder
	err = json.Unmarshal(data, &h)
	return h, err
}
