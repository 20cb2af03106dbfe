//go:build long

package api_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The validator is @seriousme/openapi-schema-validator, from npm.
func TestDocumentIsValidForASecondTool(t *testing.T) {
	t.Parallel()
	const tool = "validate-api"
	if _, err := exec.LookPath(tool); err != nil {
		if os.Getenv("CRONCE_TEST_NO_SKIP") == "1" && !slices.Contains(strings.Fields(os.Getenv("CRONCE_TEST_WITHOUT")), tool) {
			t.Fatal(err)
		}
		t.Skipf("needs %s: npm install @seriousme/openapi-schema-validator", tool)
	}
	data := readDocument(t)
	path := filepath.Join(t.TempDir(), "openapi.json")
	validate := func(data []byte) (string, error) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(tool, path).CombinedOutput()
		return string(out), err
	}
	if out, err := validate(data); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := validate(wrongDocument(data)); err == nil {
		t.Errorf("a wrong document is valid too: %s", out)
	}
}
