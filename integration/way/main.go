// Command way prints the functions of package consumer that one short slot of the default overlap
// policy passes, from the delivery of its message to its ack. It compares the coverage of a test
// that runs one slot with that of a test that runs none. So functions that an idle worker calls too
// do not count. It fails if there are more functions or files than a reader can follow.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	folder       = "consumer"
	maxFunctions = 60
	maxFiles     = 15
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "way:", err)
		os.Exit(1)
	}
}

func run() error {
	none, err := reached("TestWayOfNoSlot")
	if err != nil {
		return err
	}
	one, err := reached("TestWayOfOneSlot")
	if err != nil {
		return err
	}
	functions, files := 0, 0
	for _, file := range slices.Sorted(maps.Keys(one)) {
		names := slices.DeleteFunc(one[file], func(name string) bool { return slices.Contains(none[file], name) })
		if len(names) == 0 {
			continue
		}
		functions, files = functions+len(names), files+1
		fmt.Printf("%-24s %s\n", file, strings.Join(names, ", "))
	}
	fmt.Printf("%d functions in %d files\n", functions, files)
	if functions > maxFunctions || files > maxFiles {
		return fmt.Errorf("a slot passes %d functions in %d files: want at most %d in %d", functions, files, maxFunctions, maxFiles)
	}
	return nil
}

// reached returns the functions that the test calls, by file, in the order of the file.
func reached(test string) (map[string][]string, error) {
	profile := filepath.Join(os.TempDir(), fmt.Sprintf("way-%d", os.Getpid()))
	defer os.Remove(profile)
	out, err := exec.Command("go", "test", "./"+folder, "-count=1", "-run=^"+test+"$", "-coverprofile="+profile).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w\n%s", test, err, out)
	}
	f, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := map[string][]int{} // the first lines of the blocks that ran, by file
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		file, block, found := strings.Cut(filepath.Base(scan.Text()), ":")
		var line, column, endLine, endColumn, statements, ran int
		if n, _ := fmt.Sscanf(block, "%d.%d,%d.%d %d %d", &line, &column, &endLine, &endColumn, &statements, &ran); found && n == 6 && ran > 0 {
			lines[file] = append(lines[file], line)
		}
	}
	functions := map[string][]string{}
	for file, ran := range lines {
		all, err := declared(filepath.Join(folder, file))
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			if slices.ContainsFunc(ran, func(line int) bool { return d.from <= line && line <= d.to }) {
				functions[file] = append(functions[file], d.name)
			}
		}
	}
	if len(functions) == 0 {
		return nil, errors.New("nothing ran: is there a " + test + "?")
	}
	return functions, scan.Err()
}

type function struct {
	name     string
	from, to int // lines
}

func declared(path string) (all []function, err error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			all = append(all, function{f.Name.Name, set.Position(f.Pos()).Line, set.Position(f.End()).Line})
		}
	}
	return all, nil
}
