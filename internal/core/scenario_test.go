package core_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// runScenarios runs the files testdata/KIND/*.txt. Lines that begin with two spaces are the results
// of the input line above them: runScenarios compares them, or rewrites them if rewrite is true.
// "#" begins a comment. begin is called for each file, and returns the function that writes the
// results of an input line.
func runScenarios(t *testing.T, kind string, rewrite bool, begin func(*testing.T) func(out io.Writer, line string)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", kind, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			data := filetest.Read(t, file)
			var got strings.Builder
			answer := begin(t)
			for line := range strings.Lines(string(data)) {
				line = strings.TrimRight(line, "\n")
				if strings.HasPrefix(line, "  ") {
					continue
				}
				fmt.Fprintln(&got, line)
				if line != "" && !strings.HasPrefix(line, "#") {
					answer(&got, line)
				}
			}
			switch {
			case rewrite:
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			case got.String() != string(data):
				t.Errorf("got:\n%s\nwant:\n%s", got.String(), data)
			}
		})
	}
}
