package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

func TestEveryMutantAppliesOnceAndHasItsTest(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] || m.breaks == "" {
			t.Errorf("%s: want a name of its own, and what is broken", m.name)
		}
		names[m.name] = true
		if _, err := m.mutate(root); err != nil {
			t.Error(err)
		}
		if !hasTest(t, m) {
			t.Errorf("%s: there is no %s in %s", m.name, m.test, m.pkg())
		}
	}
}

// hasTest reads the sources: the test need not be built here.
func hasTest(t *testing.T, m mutant) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, m.pkg(), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	begins := regexp.MustCompile(`(?m)^func ` + m.test + `\(t \*testing\.T\)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if begins.Match(text) {
			return true
		}
	}
	return false
}

func TestWhatCountsAsAKill(t *testing.T) {
	t.Parallel()
	m := mutant{name: "m", test: "TestX"}
	for output, want := range map[string]string{
		"--- FAIL: TestX (0.00s)\nFAIL\n":                               "",
		"    --- FAIL: TestX/case (0.00s)\n--- FAIL: TestX (0.0s)":      "",
		"--- PASS: TestX (0.00s)\nok\n":                                 "survives",
		"# pkg\nx.go:1: undefined: y\nFAIL pkg [build failed]\n":        "does not compile",
		"ok pkg 0.1s [no tests to run]\n":                               "not run",
		"--- FAIL: TestXY (0.00s)\nFAIL\n":                              "not run",
		"panic: test timed out after 2m0s\n\trunning tests:\n\t\tTestX": "", // it hangs: noticed
	} {
		err := m.judge(output)
		if got := ""; err != nil {
			if got = err.Error(); want == "" || !strings.Contains(got, want) {
				t.Errorf("%q: %s, want %q", output, got, want)
			}
		} else if want != "" {
			t.Errorf("%q counts as a kill, want %q", output, want)
		}
	}
}
