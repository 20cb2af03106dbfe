//go:build long

package httpapi_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/apitest"
	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// The validator is @seriousme/openapi-schema-validator, from npm.
func TestDocumentIsValidForASecondTool(t *testing.T) {
	t.Parallel()
	const tool = "validate-api"
	if _, err := exec.LookPath(tool); err != nil {
		t.Fatalf("%v: run \".ci/task npm:install\", and put bin/npm/node_modules/.bin into PATH", err)
	}
	data := apitest.Document(t)
	path := filepath.Join(t.TempDir(), "openapi.json")
	validate := func(data []byte) (string, error) {
		filetest.Write(t, path, data)
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
