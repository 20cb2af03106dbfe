package promise

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// rulesOf are the rules that the check knows, as its source names them.
func rulesOf(t *testing.T, patterns ...string) []string {
	t.Helper()
	named := regexp.MustCompile(`c\.bad\("([^"]+)"`)
	var rules []string
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range paths {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range named.FindAllStringSubmatch(string(source), -1) {
				rules = append(rules, m[1])
			}
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}
