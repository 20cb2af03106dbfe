package reload

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".new"
	filetest.Write(t, next, text)
	if err := os.Rename(next, path); err != nil { // a new inode, as deployments replace files
		t.Fatal(err)
	}
}

func TestValueFollowsItsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "one")
	var log bytes.Buffer
	reads := 0
	v, err := New(slog.New(slog.NewTextHandler(&log, nil)), func() (string, error) {
		reads++
		data, err := os.ReadFile(path)
		if err == nil && string(data) == "bad" {
			err = errors.New("cannot parse")
		}
		return string(data), err
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	v.every = 0
	for _, step := range []struct {
		text, want string
		reads      int
	}{{"", "one", 1}, {"two", "two", 2}, {"", "two", 2}, {"bad", "two", 3}, {"", "two", 3}, {"three", "three", 4}} {
		if step.text != "" {
			write(t, path, step.text)
		}
		if got := v.Get(); got != step.want || reads != step.reads {
			t.Errorf("after %q: %q, read %d times; want %q, %d times", step.text, got, reads, step.want, step.reads)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := v.Get(); got != "three" {
		t.Errorf("without the file: %q", got)
	}
	if n := strings.Count(log.String(), "not reloaded"); n != 2 {
		t.Errorf("want 2 errors in the log, one for each bad state:\n%s", log.String())
	}
}

func TestValueIsReadAgainWhenItsFileGetsOtherPermissions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "one")
	v, err := New(slog.New(slog.DiscardHandler), func() (string, error) {
		info, err := os.Stat(path)
		if err == nil && info.Mode().Perm() == 0 {
			return "", os.ErrPermission // the test may run as root, which can read it
		}
		data, err := os.ReadFile(path)
		return string(data), err
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	v.every = 0
	write(t, path, "two")
	for _, step := range []struct {
		mode os.FileMode
		want string
	}{{0, "one"}, {0o600, "two"}} {
		if err := os.Chmod(path, step.mode); err != nil {
			t.Fatal(err)
		}
		if got := v.Get(); got != step.want {
			t.Errorf("with the permissions %v: %q, want %q", step.mode, got, step.want)
		}
	}
}

func TestNewReturnsTheErrorOfTheFirstRead(t *testing.T) {
	t.Parallel()
	if _, err := New(slog.New(slog.DiscardHandler), func() (int, error) { return 0, os.ErrNotExist }, "nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
