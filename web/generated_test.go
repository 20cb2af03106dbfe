package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/web"
)

const compilerOptions = `{"compilerOptions": {"strict": true, "module": "nodenext", "target": "es2022", "lib": ["es2022", "dom", "dom.iterable"],
	"skipLibCheck": true, "allowImportingTsExtensions": true, "rewriteRelativeImportExtensions": true, "types": []}, "files": ["drive.ts"]}`

// A client in another language, generated from the OpenAPI document, drives a fleet:
// testdata/drive.ts compiles against the types that openapi-typescript makes, and runs.
func TestGeneratedClientDrivesAFleet(t *testing.T) {
	t.Parallel()
	const tool = "openapi-typescript"
	generator, err := exec.LookPath(tool)
	if err != nil {
		if os.Getenv("CRONCE_TEST_NO_SKIP") == "1" && !slices.Contains(strings.Fields(os.Getenv("CRONCE_TEST_WITHOUT")), tool) {
			t.Fatal(err)
		}
		t.Skip("needs npm install openapi-typescript openapi-fetch typescript, in one folder, and its node_modules/.bin in PATH")
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

// generatedFleet is a node with a handler, and a server of its API.
func generatedFleet(t *testing.T) (url string) {
	t.Helper()
	nc := natstest.Run(t).Conn()
	s, err := cronce.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	type person struct {
		Name string `json:"name"`
	}
	err = cronce.HandleFunc(s, job.Job{Name: "greet", Schedule: job.OnDemand}, func(_ context.Context, run job.Run, p person) error {
		fmt.Fprintln(run.Output, "hello", p.Name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	c, err := client.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the handler", func() bool {
		d, err := c.Job(t.Context(), "greet")
		return err == nil && len(d.Handlers) == 1
	})
	h := web.New(c)
	site := httptest.NewServer(h)
	t.Cleanup(func() { h.Close(); site.Close() })
	return site.URL
}
