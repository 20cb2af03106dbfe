package promise

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
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
			for _, m := range named.FindAllStringSubmatch(string(filetest.Read(t, path)), -1) {
				rules = append(rules, m[1])
			}
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}
