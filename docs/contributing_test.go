package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// CONTRIBUTING.md tells which file to change and which test asks for it. So the files, the folders, the tests and the
// identifiers that it names exist.
func TestContributingNamesWhatExists(t *testing.T) {
	t.Parallel()
	paths, words := repository(t)
	path := regexp.MustCompile(`^[\w.-]+(/[\w.-]+)*(\.(go|js|json|yaml|md|sh|mutants)|/[\w-]+)$`)
	module := regexp.MustCompile(`^[\w-]+\.[\w.-]+/`) // the first part is a domain
	identifier := regexp.MustCompile(`^[A-Za-z]\w*(\.\w+)*$`)
	checked := 0
	for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(string(filetest.Read(t, "../CONTRIBUTING.md")), -1) {
		switch name := span[1]; {
		case strings.Contains(name, "NAME"), name == "testing/synctest", module.MatchString(name): // a name of yours, a package of Go, and modules
		case path.MatchString(name):
			checked++
			if !slices.ContainsFunc(paths, func(p string) bool { return p == name || strings.HasSuffix(p, "/"+name) }) {
				t.Errorf("there is no file or folder %s", name)
			}
		case identifier.MatchString(name):
			checked++
			for part := range strings.SplitSeq(name, ".") {
				if !words[part] {
					t.Errorf("no Go or JavaScript file has the name %s", name)
				}
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d names found", checked)
	}
}

// repository returns the paths of all files and folders, and the words of the Go and JavaScript files, except this one.
func repository(t *testing.T) (paths []string, words map[string]bool) {
	t.Helper()
	words = map[string]bool{}
	word := regexp.MustCompile(`[A-Za-z_]\w*`)
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return fs.SkipDir
		}
		paths = append(paths, filepath.ToSlash(strings.TrimPrefix(file, ".."+string(filepath.Separator))))
		if ext := filepath.Ext(file); d.IsDir() || ext != ".go" && ext != ".js" || file == "contributing_test.go" {
			return nil
		}
		text, err := os.ReadFile(file)
		for _, w := range word.FindAllString(string(text), -1) {
			words[w] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths, words
}
