// Package need skips the tests of what not every machine has.
package need

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Program returns the path of a program. It skips the test if the machine lacks the program. With
// CRONCE_TEST_NO_SKIP=1 the test fails instead, unless CRONCE_TEST_WITHOUT names the program.
func Program(t *testing.T, name string) (path string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if slices.Contains(strings.Fields(os.Getenv("CRONCE_TEST_WITHOUT")), name) {
		t.Skipf("needs %s, which CRONCE_TEST_WITHOUT excludes: %v", name, err)
	}
	Absent(t, name, err.Error())
	return ""
}

// Absent skips the test because something is missing. With CRONCE_TEST_NO_SKIP=1 the test fails instead.
func Absent(t *testing.T, what, why string) {
	t.Helper()
	if os.Getenv("CRONCE_TEST_NO_SKIP") == "1" {
		t.Fatalf("needs %s, and CRONCE_TEST_NO_SKIP=1 forbids to skip: %s", what, why)
	}
	t.Skipf("needs %s: %s", what, why)
}
