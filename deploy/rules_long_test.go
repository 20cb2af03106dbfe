//go:build long

package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

var metric = regexp.MustCompile(`\b(cronce_[a-z_]+|cronce:[a-z_:0-9]+)`)

// The cases notice a metric that a rule names wrongly. That a fleet has the metrics is tested in
// integration/deploy_linux_test.go.
func TestPromtoolFailsIfAMetricOfARuleIsRenamed(t *testing.T) {
	t.Parallel()
	needCommand(t, "promtool")
	rules := strings.SplitAfter(string(filetest.Read(t, "prometheus/cronce.rules.yaml")), "\n")
	for i, line := range rules {
		_, expr, found := strings.Cut(line, "expr: ")
		if !found {
			continue
		}
		names := metric.FindAllString(expr, -1)
		if len(names) == 0 {
			t.Errorf("no metric in %q: write the expression in one line", line)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			renamed := slices.Clone(rules)
			renamed[i] = regexp.MustCompile(regexp.QuoteMeta(name)+`\b`).ReplaceAllString(line, name+"_renamed")
			dir := t.TempDir()
			for file, text := range map[string]string{"cronce.rules.yaml": strings.Join(renamed, ""), "cronce.rules_test.yaml": string(filetest.Read(t, "prometheus/cronce.rules_test.yaml"))} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("promtool", "test", "rules", "cronce.rules_test.yaml")
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err == nil {
				t.Errorf("no case notices that %s is renamed in %s\n%s", name, line, out)
			}
		}
	}
}
