package docs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// fence is a fenced block of a Markdown page of this repository.
type fence struct {
	file string // from the root of the repository
	line int    // of its first line of text, from 1
	lang string
	text string // without the indentation of the fence
}

func (f fence) String() string { return fmt.Sprintf("%s:%d", f.file, f.line) }

var opening = regexp.MustCompile("^( *)(`{3,})(.*)$")

// fences are those of all pages.
func fences(t *testing.T) []fence {
	t.Helper()
	var all []fence
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel("..", path)
		all = append(all, fencesOf(filepath.ToSlash(name), string(text))...)
		return err
	})
	if err != nil || len(all) < 30 {
		t.Fatalf("%d fences, %v", len(all), err)
	}
	return all
}

func fencesOf(file, text string) (all []fence) {
	var open []string // of the fence that we are in: indentation, marks
	for i, line := range strings.Split(text, "\n") {
		m := opening.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			open = m
			all = append(all, fence{file: file, line: i + 2, lang: strings.TrimSpace(m[3])})
		case open != nil && m != nil && m[2] == open[2] && m[3] == "":
			open = nil
		case open != nil:
			all[len(all)-1].text += strings.TrimPrefix(line, open[1]) + "\n"
		}
	}
	return all
}

// Whatever a page shows to be copied is right, or known not to be for copying.
func TestFencesAreOfKindsThatAreChecked(t *testing.T) {
	t.Parallel()
	code := goFiles(t)
	for _, f := range fences(t) {
		switch f.lang {
		case "sh": // see TestPagesCommandsAreRun
		case "yaml":
			checkYAML(t, f)
		case "go":
			checkGo(t, f, code)
		case "json":
			checkJSON(t, f)
		case "text", "crontab", "ini", "python", "ruby", "nats", "promql":
			if hidden.MatchString(f.text) && f.file != "docs/cli.md" {
				t.Errorf("%s: a command in a fence of %s: make it sh", f, f.lang)
			}
		default:
			t.Errorf("%s: a fence of %q: want one of sh, yaml, go, json, which are checked, or text, crontab, ini, python, ruby, nats, promql", f, f.lang)
		}
	}
}

var hidden = regexp.MustCompile(`(?m)^\$? *(cronce|nats|go|curl) [a-z]`)

// checkYAML takes job files, and parts of one, which are put into a file.
func checkYAML(t *testing.T, f fence) {
	t.Helper()
	text := dedent(f.text)
	switch {
	case strings.HasPrefix(text, "apiVersion:"): // of Kubernetes, not ours
		var any map[string]any
		if err := yaml.Unmarshal([]byte(text), &any); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		return
	case strings.HasPrefix(text, "- name:"):
		text = "version: 1\njobs:\n" + indent(text, "  ")
	case !strings.Contains(text, "version: 1"):
		settings := "name: example\n"
		if !strings.Contains(text, "schedule:") && !strings.Contains(text, "after: [") {
			settings += "schedule: \"@hourly\"\n"
		}
		if !strings.HasPrefix(text, "action:") && !strings.Contains(text, "\naction:") {
			settings += "action: {exec: [/bin/true]}\n"
		}
		text = "version: 1\njobs:\n  -\n" + indent(settings+text, "    ")
	}
	var options []spec.Option
	if strings.HasPrefix(f.file, "clients/") { // processes of users have the handlers
		options = append(options, spec.WithoutActions())
	}
	if _, err := jobfile.Parse(f.String(), []byte(text), options...); err != nil {
		t.Errorf("%v", err)
	}
}

func checkJSON(t *testing.T, f fence) {
	t.Helper()
	for dec := json.NewDecoder(strings.NewReader(f.text)); ; {
		var value any
		if err := dec.Decode(&value); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s: %v", f, err)
			return
		}
	}
}

// elsewhere are Go fences of other modules, by a line of theirs.
var elsewhere = map[string]string{
	"asynq.NewScheduler": "of asynq, which this module does not require; compiled by hand with v0.25.1",
	"river.NewWorkers":   "of River, which this module does not require; compiled by hand with v0.51.1",
}

// checkGo wants the lines of a fence to stand in a Go file of this repository, which
// the compiler sees. Indentation apart.
func checkGo(t *testing.T, f fence, code map[string]string) {
	t.Helper()
	for mark := range elsewhere {
		if strings.Contains(f.text, mark) {
			return
		}
	}
	want := bare(f.text)
	for _, text := range code {
		if strings.Contains(text, want) {
			return
		}
	}
	t.Errorf("%s: no Go file has these lines: put them into one below examples/, where they compile:\n%s", f, f.text)
}

// goFiles are the bare texts of the examples.
func goFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		example := strings.Contains(filepath.ToSlash(path), "/examples/") || strings.HasPrefix(d.Name(), "example")
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || !example {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = bare(string(text))
		return err
	})
	if err != nil || len(files) < 2 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	return files
}

// bare is text without indentation and empty lines.
func bare(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

func dedent(text string) string {
	margin := text[:len(text)-len(strings.TrimLeft(text, " "))]
	return strings.TrimPrefix(strings.ReplaceAll(text, "\n"+margin, "\n"), margin)
}

func indent(text, by string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(by + line)
	}
	return b.String()
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
var dropped = regexp.MustCompile("[^a-z0-9 _-]")

// Every link between the pages leads somewhere, to its heading too.
func TestPagesLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages := 0
	_ = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			t.Fatal(err)
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		pages++
		for _, m := range link.FindAllStringSubmatch(string(filetest.Read(t, path)), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: link to %s: there is no such file", path, m[1])
			} else if anchor != "" && !hasHeading(string(filetest.Read(t, file)), anchor) {
				t.Errorf("%s: link to %s: there is no such heading", path, m[1])
			}
		}
		return nil
	})
	if pages < 8 {
		t.Errorf("only %d pages", pages)
	}
}

func hasHeading(page, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		if strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}
