//go:build !windows

package embed

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// If another user can write to the store's directory before the owner, the owner must still
// not read or overwrite one of the owner's own files.
func TestLockFollowsNoFileThatWasPlanted(t *testing.T) {
	t.Parallel()
	const text = "the victim's\n"
	for name, plant := range map[string]func(victim, lock string) error{
		"a symbolic link": os.Symlink,
		"a hard link":     os.Link,
		"a dangling link": func(victim, lock string) error { return os.Symlink(victim+".not", lock) },
		"a named pipe":    func(_, lock string) error { return unix.Mkfifo(lock, 0o600) },
		"a directory":     func(_, lock string) error { return os.Mkdir(lock, 0o700) },
	} {
		dir := t.TempDir()
		victim, store := filepath.Join(dir, "victim"), filepath.Join(dir, "store")
		filetest.Write(t, victim, text)
		if err := os.Mkdir(store, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := plant(victim, filepath.Join(store, lockName)); err != nil {
			t.Fatal(err)
		}
		if lock, err := lockStore(store); err == nil {
			_ = lock.describe(holder{PID: 1})
			lock.release()
			t.Errorf("%s was taken for the lock", name)
		} else if !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := readHolder(store); err == nil {
			t.Errorf("%s was read", name)
		}
		if now, err := os.ReadFile(victim); err != nil || string(now) != text {
			t.Errorf("%s: the victim is %q, %v", name, now, err)
		}
		if _, err := os.Lstat(victim + ".not"); err == nil {
			t.Errorf("%s: a file was created through it", name)
		}
	}
}

func TestFileThatShowsTheRoomOfADiskFollowsNoLink(t *testing.T) {
	t.Parallel()
	store, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("the victim's"), 0o600), os.Symlink(victim, filepath.Join(store, "cronce.room"))); err != nil {
		t.Fatal(err)
	}
	if !writable(store) {
		t.Error("the store is not writable")
	}
	if now, err := os.ReadFile(victim); err != nil || string(now) != "the victim's" {
		t.Errorf("the victim has %d bytes, %v", len(now), err)
	}
}
