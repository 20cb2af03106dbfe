//go:build long

package web_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A client in another language, generated from the OpenAPI document, drives a fleet:
// testdata/drive.ts compiles against the types that openapi-typescript makes, and runs.
func TestGeneratedClientDrivesAFleet(t *testing.T) {
	t.Parallel()
	const tool = "openapi-typescript"
	generator, err := exec.LookPath(tool)
	if err != nil {
		t.Fatalf("%v: run \".ci/task npm:install\", and put bin/npm/node_modules/.bin into PATH", err)
	}
	site := generatedFleet(t)
	dir := t.TempDir()
	modules := filepath.Dir(filepath.Dir(generator))
	drive, err := os.ReadFile("testdata/drive.ts")
	if err == nil {
		err = os.Symlink(modules, filepath.Join(dir, "node_modules"))
	}
	for name, text := range map[string]string{"drive.ts": string(drive), "tsconfig.json": compilerOptions, "package.json": `{"type": "module"}`} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	run := func(program string, args ...string) string {
		c := exec.CommandContext(t.Context(), program, args...)
		c.Dir = dir
		var wrong strings.Builder
		c.Stderr = &wrong
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s%s", program, args, err, out, wrong.String())
		}
		return string(out)
	}
	run(generator, site+"/api/v1/openapi.json", "-o", "api.d.ts")
	run(filepath.Join(modules, ".bin", "tsc"), "-p", ".")
	var got struct {
		State, Output string
		Slots         int
		Why           string
	}
	if err := json.Unmarshal([]byte(run("node", "drive.js", site+"/api/v1")), &got); err != nil {
		t.Fatal(err)
	}
	if got.State != "succeeded" || got.Output != "hello Erin\n" || got.Slots != 1 || !strings.Contains(got.Why, "succeeded") {
		t.Errorf("%+v", got)
	}
}
