package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// mostRequirements is how many modules the product may require directly.
const mostRequirements = 24

// requirement is a module that a go.mod requires.
type requirement struct {
	Path     string
	Indirect bool
}

// requirements returns what the module in dir requires.
func requirements(t *testing.T, dir string) []requirement {
	t.Helper()
	var mod struct{ Require []requirement }
	if err := json.Unmarshal([]byte(goIn(t, dir, "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	return mod.Require
}

// A requirement is a load for everyone who embeds the library. CONTRIBUTING.md says of each why it is there.
func TestEachRequirementHasItsReason(t *testing.T) {
	t.Parallel()
	var direct []string
	for _, r := range requirements(t, "..") {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	if len(direct) > mostRequirements {
		t.Errorf("go.mod requires %d modules directly, at most %d: put tests and tools that need more into a module of their own", len(direct), mostRequirements)
	}
	_, section, _ := strings.Cut(string(filetest.Read(t, "../CONTRIBUTING.md")), "\n## Requirements\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var reasoned []string
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)`: .{10,}$").FindAllStringSubmatch(section, -1) {
		reasoned = append(reasoned, m[1])
	}
	if !slices.Equal(reasoned, direct) {
		t.Errorf("CONTRIBUTING.md, Requirements, has reasons for\n%s\nand go.mod requires\n%s", strings.Join(reasoned, "\n"), strings.Join(direct, "\n"))
	}
}

// What only tests and tools need has modules of its own. A program that embeds the library has none of it in its graph.
func TestLibraryUsersGetNoModulesOfTestsAndTools(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, filepath.Join(dir, "go.mod"), "module example.org/outside\n\ngo 1.26.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n")
	filetest.Write(t, filepath.Join(dir, "go.sum"), filetest.Read(t, "../go.sum"))
	inGraph := map[string]bool{}
	for _, at := range strings.Fields(goIn(t, dir, "mod", "graph")) {
		path, _, _ := strings.Cut(at, "@")
		inGraph[path] = true
	}
	if len(inGraph) < 50 {
		t.Fatalf("the graph of a program that embeds the library has only %d modules", len(inGraph))
	}
	// The product's own tests use two libraries that have no requirements of their own.
	needed := map[string]bool{"go.uber.org/goleak": true, "pgregory.net/rapid": true}
	for _, path := range strings.Fields(goIn(t, "..", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")) {
		needed[path] = true
	}
	others := 0
	for _, file := range otherModules(t) {
		for _, r := range requirements(t, filepath.Dir(file)) {
			if r.Indirect || needed[r.Path] || r.Path == module {
				continue
			}
			others++
			if inGraph[r.Path] {
				t.Errorf("%s needs %s, and the product does not: the graph of a program that embeds the library has it", file, r.Path)
			}
		}
	}
	if others < 10 {
		t.Errorf("the other modules require only %d modules that the product does not", others)
	}
}

// otherModules returns the go.mod files of the modules of tests and tools.
func otherModules(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"../lab/go.mod", "*/go.mod"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	return files
}

// goIn runs a go command in a folder, and returns what it prints.
func goIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
