package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A mutant that does not compile is not killed by its test.
func TestEveryMutantAndSabotageCompiles(t *testing.T) {
	t.Parallel()
	all := slices.Clone(mutants)
	for _, s := range sabotages {
		all = append(all, s.mutant)
	}
	modules := map[string][]mutant{}
	for _, m := range all {
		module, _ := inModule(path.Dir(m.file))
		modules[module] = append(modules[module], m)
	}
	for module, of := range modules {
		packages := listPackages(t, module, of)
		fset := token.NewFileSet()
		imports := importer.ForCompiler(fset, "gc", func(name string) (io.ReadCloser, error) {
			return os.Open(packages[name].Export)
		})
		for _, m := range of {
			pkg := packages["github.com/cronce-io/cronce/"+path.Dir(m.file)]
			if !slices.Contains(pkg.GoFiles, path.Base(m.file)) {
				t.Logf("%s: %s is not built on %s", m.name, m.file, runtime.GOOS)
				continue
			}
			if err := m.check(fset, imports, pkg); err != nil {
				t.Errorf("%s does not compile: %v", m.title(), err)
			}
		}
	}
}

// builtPackage is what go list knows of a package. Export is the file of its compiled
// declarations.
type builtPackage struct {
	ImportPath, Export string
	GoFiles            []string
}

func listPackages(t *testing.T, module string, all []mutant) map[string]builtPackage {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export,GoFiles"}
	for _, m := range all {
		args = append(args, "github.com/cronce-io/cronce/"+path.Dir(m.file))
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Stderr = filepath.Join(root, module), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]builtPackage{}
	for d := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p builtPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

// check type-checks the mutant's package with the mutated file in it.
func (m mutant) check(fset *token.FileSet, imports types.Importer, pkg builtPackage) error {
	mutated, err := m.mutate(root)
	if err != nil {
		return err
	}
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		var source any // nil: the file as it is
		if name == path.Base(m.file) {
			source = mutated
		}
		file, err := parser.ParseFile(fset, filepath.Join(root, path.Dir(m.file), name), source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	config := types.Config{Importer: imports}
	_, err = config.Check(pkg.ImportPath, fset, files, nil)
	return err
}
