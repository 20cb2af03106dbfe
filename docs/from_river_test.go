package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// The page promises that each feature of others is this or that here. So what its tables name in
// the column of Cronce exists: names of Go, commands and their flags, fields of the job file.
func TestFromRiverNamesWhatExists(t *testing.T) {
	t.Parallel()
	exported := map[string]bool{}
	for _, dir := range []string{"..", "../job", "../client", "../croncetest", "../web"} {
		addExported(t, dir, exported)
	}
	commands, fields := string(filetest.Read(t, "cli.md")), string(filetest.Read(t, "configuration.md"))
	row := regexp.MustCompile(`(?m)^\| .* \| (.*) \|$`)
	span := regexp.MustCompile("`([^`]+)`")
	checked := 0
	for _, m := range row.FindAllStringSubmatch(string(filetest.Read(t, "from-river.md")), -1) {
		for _, s := range span.FindAllStringSubmatch(m[1], -1) {
			checked++
			if why := unknown(s[1], exported, commands, fields); why != "" {
				t.Errorf("%s: %s", s[1], why)
			}
		}
	}
	if checked < 80 {
		t.Errorf("only %d names found", checked)
	}
}

var (
	goName  = regexp.MustCompile(`^([a-z]+\.)?([A-Z]\w*)(\(\))?(\.([A-Z]\w*))?(\(.*\))?$`)
	setting = regexp.MustCompile(`^([a-z_]+)(\.[a-z_]+)?(: .*)?$`)
	option  = regexp.MustCompile(`--[a-z-]+`)
	noun    = regexp.MustCompile(`^cronce( [a-z]+){1,2}`)
)

// unknown says why a name on the page is none, or returns "".
func unknown(name string, exported map[string]bool, commands, fields string) string {
	switch {
	case known[name]:
	case strings.HasPrefix(name, "cronce "):
		heading := "\n## " + noun.FindString(name) + "\n"
		shorter := heading[:strings.LastIndexByte(heading, ' ')] + "\n" // the last word may be an argument
		if !strings.Contains(commands, heading) && !strings.Contains(commands, shorter) {
			return "there is no such command"
		}
		for _, f := range option.FindAllString(name, -1) {
			if !strings.Contains(commands, f+" ") {
				return "no command has the flag " + f
			}
		}
	case goName.MatchString(name):
		m := goName.FindStringSubmatch(name)
		if !exported[m[2]] || m[5] != "" && !exported[m[5]] {
			return "Go code has no such name"
		}
	case setting.MatchString(name):
		if m := setting.FindStringSubmatch(name); !strings.Contains(fields, "| `"+m[1]+"`") && !strings.Contains(fields, "| `"+m[1]+m[2]+"`") {
			return "the job file has no such field"
		}
	default:
		if !strings.HasPrefix(name, `"@`) {
			return "of no kind that is checked"
		}
	}
	return ""
}

// known are names of other kinds.
var known = map[string]bool{
	"cronce.event.>": true, "CRONCE_SLOT": true, "Cronce-Slot": true,
	"client": true, "croncetest": true, // packages
	"skip": true, "exec": true, "http": true, "nats": true, // values
}

// addExported adds the exported names of a package: of fields and methods too.
func addExported(t *testing.T, dir string, names map[string]bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir:
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.IsExported() {
				names[id.Name] = true
			}
			_, body := n.(*ast.BlockStmt)
			return !body // what stands in a body is used there, not declared
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
