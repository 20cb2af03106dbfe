package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

const root = "../.."

func TestEveryMutantAppliesOnceAndHasItsTest(t *testing.T) {
	t.Parallel()
	if errLists != nil {
		t.Fatal(errLists)
	}
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] || m.breaks == "" {
			t.Errorf("%s: want a name of its own, and what is broken", m.title())
		}
		names[m.name] = true
		if _, err := m.mutate(root); err != nil {
			t.Error(err)
		}
		if !hasTest(t, m) {
			t.Errorf("%s: there is no %s in %s", m.title(), m.test, m.pkg())
		}
	}
}

func TestAMistakeInAListIsNamedWithItsLine(t *testing.T) {
	t.Parallel()
	const good = "a: breaks a\nkv/a.go TestA kv/b\n-old\n-\n+new\n\n\nb: breaks b\nkv/b.go TestB\n-old\n"
	all, err := readList("x", good)
	if err != nil || len(all) != 2 || all[0].at != "x:1" || all[1].at != "x:8" || all[0].old != "old\n" || all[0].new != "new" || all[0].in != "kv/b" || all[1].test != "TestB" {
		t.Errorf("%+v, %v", all, err)
	}
	for wrong, want := range map[string]string{
		"c breaks c\nkv/c.go TestC\n-old\n":              "x:12: ",
		"c: breaks c\n":                                  "x:12: ",
		"c: breaks c\nkv/c.go\n-old\n":                   "x:13: ",
		"c: breaks c\nkv/c.go TestC\nold\n":              "x:14: ",
		"c: breaks c\nkv/c.go TestC\n-old\n+new\n-old\n": "x:16: ",
	} {
		if _, err := readList("x", good+"\n"+wrong); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want an error that begins with %q", wrong, err, want)
		}
	}
}

func TestTimeoutIsLongerThanATestWaits(t *testing.T) {
	t.Parallel()
	if timeout <= natstest.Patience {
		t.Errorf("a run of go test ends after %v, and a test may wait %v for an event", timeout, natstest.Patience)
	}
}

func TestThePartsOfTheListAreAllOfItOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for _, part := range []string{"1/3", "2/3", "3/3"} {
		chosen, err := choose(nil, part)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range chosen {
			seen[m.name]++
		}
	}
	for _, m := range mutants {
		if seen[m.name] != 1 {
			t.Errorf("%s is in %d parts of three", m.name, seen[m.name])
		}
	}
	for _, wrong := range []string{"0/3", "4/3", "x", ""} {
		if _, err := choose(nil, wrong); err == nil {
			t.Errorf("part %q is taken", wrong)
		}
	}
}

func TestEverySabotageAppliesOnceAndSaysWhatFindsIt(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, s := range sabotages {
		if names[s.name] || s.breaks == "" || len(s.rules) == 0 {
			t.Errorf("%s: want a name of its own, what is broken, a duration and rules", s.name)
		}
		names[s.name] = true
		if _, err := s.mutate(root); err != nil {
			t.Error(err)
		}
	}
}

func TestASabotageIsFoundByItsOwnRuleOnly(t *testing.T) {
	t.Parallel()
	s := sabotage{mutant: mutant{name: "s", breaks: "a rule"}, rules: []string{"place"}}
	const other, own, sum = `{"rule":"early"}` + "\n", `{"rule":"place"}` + "\n", `{"ok":false}` + "\n"
	for name, c := range map[string]struct {
		code   int
		output string
		found  bool
	}{
		"by its rule":        {3, other + own + sum, true},
		"by another's":       {3, other + sum, false},
		"inconclusive":       {3, sum, false},
		"it was not found":   {0, sum, false},
		"it could not begin": {1, own, false},
	} {
		if rule, err := s.verdict(c.code, c.output, ""); (err == nil) != c.found || c.found && rule != "place" {
			t.Errorf("%s: %q, %v", name, rule, err)
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
		if begins.Match(filetest.Read(t, file)) {
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
		if err != nil {
			if got := err.Error(); want == "" || !strings.Contains(got, want) {
				t.Errorf("%q: %s, want %q", output, got, want)
			}
		} else if want != "" {
			t.Errorf("%q counts as a kill, want %q", output, want)
		}
	}
}
