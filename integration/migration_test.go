//go:build long && unix

package integration

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// All programs in Python on the page compile. The one that needs nothing but Python runs for a slot of its plan,
// and for a trigger, which has no instant.
func TestPythonOfTheMigrationPageRuns(t *testing.T) {
	t.Parallel()
	python, why := lookPath("python3")
	need(t, "python3", why)
	page := filetest.Read(t, "../docs/migration.md")
	s := newServedSite(t)
	report := ""
	fences := regexp.MustCompile("(?s)```python\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, f := range fences {
		path := s.write("fence.py", f[1])
		if out, err := exec.Command(python, "-m", "py_compile", path).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s in\n%s", err, out, f[1])
		}
		if strings.HasPrefix(f[1], `"""report.py`) {
			report = s.write("report.py", f[1])
		}
	}
	if len(fences) < 4 || report == "" {
		t.Fatalf("the page has %d programs in Python, and the path of report.py is %q", len(fences), report)
	}
	instant := soon()
	file := s.write("jobs.yaml", "version: 1\njobs:\n  - {name: report, "+at(instant)+", overlap: allow, retry: {attempts: 1}, payload: {format: pdf}, action: {exec: ["+python+", "+report+"]}}\n")
	s.worker("w1", file).says("node is up")
	s.command(0, "job", "trigger", "report", "--key", "k")
	outputs := map[string]string{}
	eventually(t, "both runs to succeed", func() bool {
		for _, r := range s.slots("--state", "succeeded") {
			outputs[r.ID] = r.Output
		}
		return len(outputs) == 2
	})
	if got, want := outputs[slotID("report", instant)], "report for "+instant.UTC().Format("2006-01-02 15:04:05+00:00")+" as pdf\n"; got != want {
		t.Errorf("by its plan: %q, want %q", got, want)
	}
	if got := outputs["report:@k"]; !regexp.MustCompile(`^report for \S+ \S+ as pdf\n$`).MatchString(got) {
		t.Errorf("triggered: %q", got)
	}
}
