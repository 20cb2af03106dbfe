//go:build unix

package serve

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// Without a writer, a read of a named pipe never ends, and the node ignores each later SIGHUP.
func TestReloadReadsNothingThatCannotBeReadAgain(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	a := &base.App{Stdin: strings.NewReader("version: 1\njobs: {}\n")}
	for _, file := range []string{pipe, "-"} {
		err := reload(t.Context(), a, runFlags{file: file}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "cannot be read again") {
			t.Errorf("%s: got %v, want an error that it cannot be read again", file, err)
		}
	}
}
