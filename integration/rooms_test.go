package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// maxSiblings is how many files or packages a reader can survey in one folder. More need groups.
const maxSiblings = 20

// TestRoomsAreSmall: no folder holds more than fifteen Go files, tests apart, or more than
// fifteen packages side by side.
func TestRoomsAreSmall(t *testing.T) {
	t.Parallel()
	files, folders := map[string]int{}, map[string]map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		dir := filepath.Dir(path)
		if !strings.HasSuffix(path, "_test.go") {
			files[dir]++
		}
		for ; dir != ".." && !hasModule(dir); dir = filepath.Dir(dir) {
			above := filepath.Dir(dir)
			if folders[above] == nil {
				folders[above] = map[string]bool{}
			}
			folders[above][dir] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, n := range files {
		if n > maxSiblings {
			t.Errorf("%s has %d files, at most %d: group them in packages by what they are about", dir, n, maxSiblings)
		}
	}
	for dir, below := range folders {
		if len(below) > maxSiblings {
			t.Errorf("%s has %d packages side by side, at most %d: group them by what they are about", dir, len(below), maxSiblings)
		}
	}
}

// hasModule reports whether a folder is that of another module.
func hasModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}
