package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/lab/conformance"
)

// The Go code passes the kit through the same door as a client in any other language. The tests of
// package docs are that client.
func TestGoAnswersTheVectors(t *testing.T) {
	t.Parallel()
	exe := filepath.Join(t.TempDir(), "docs.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", exe, "./docs")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cases, err := conformance.Cases()
	if err != nil {
		t.Fatal(err)
	}
	command := conformance.Command{Line: "'" + exe + "' -test.run '^TestClientOfTheVectors$'", Env: append(os.Environ(), "CRONCE_TEST_VECTORS_CLIENT=1")}
	passed := 0
	err = conformance.Ask(t.Context(), command, cases, natstest.Patience, func(v conformance.Verdict) {
		if v.Wrong != "" {
			t.Errorf("%s: %s", v.Case, v.Wrong)
		}
		if v.Wrong == "" && v.Left == "" {
			passed++
		}
	})
	if err != nil {
		t.Error(err)
	}
	if want := len(cases) - 40; passed < want {
		t.Errorf("%d cases have passed, want at least %d", passed, want)
	}
}
