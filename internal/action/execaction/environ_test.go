//go:build unix

package execaction_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/action/execaction"
	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// output runs the command of e and returns what it wrote.
func output(t *testing.T, e spec.Exec) (string, error) {
	t.Helper()
	g := guard.New(guard.Config{})
	t.Cleanup(g.Close)
	g.Renew(boot.Now() + time.Hour)
	handler, err := execaction.New(e, g, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = handler(t.Context(), newRun(&out))
	return out.String(), err
}

// Not parallel: it changes the environment.
func TestVariablesComeFromTheFileTheEnvironmentAndASecretFile(t *testing.T) {
	t.Setenv("REPORT_TOKEN", "of the worker")
	t.Setenv("NATS_PASSWORD", "a login")
	t.Setenv("LANG", "xx")
	secret := filepath.Join(t.TempDir(), "secret")
	filetest.Write(t, secret, "of a file \n")
	e := spec.Exec{Args: []string{"/bin/sh", "-c", `echo "[$A][$B][$C][$LANG][$NATS_PASSWORD]${CRONCE_JOB}"`}, Env: []spec.Variable{
		{Name: "A", Value: "a 'b' $x"}, {Name: "B", Env: "REPORT_TOKEN"}, {Name: "C", File: secret}, {Name: "LANG"},
	}}
	if out, err := output(t, e); out != "[a 'b' $x][of the worker][of a file ][][]report\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	e.Env = append(e.Env, spec.Variable{Name: "NATS_PASSWORD", Env: "NATS_PASSWORD"})
	if out, err := output(t, e); !strings.Contains(out, "[a login]") || err != nil {
		t.Errorf("a login that the job asks for: got %q, %v", out, err)
	}
	// A secret that was rotated is read again.
	filetest.Write(t, secret, "rotated")
	if out, err := output(t, e); !strings.Contains(out, "[rotated]") || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestCleanEnvironmentHasPathAndWhatIsNamed(t *testing.T) {
	t.Setenv("REPORT_TOKEN", "x")
	t.Setenv("OTHER", "x")
	out, err := output(t, spec.Exec{Args: []string{"env"}, CleanEnv: true, PassEnv: []string{"OTHER"}, Env: []spec.Variable{{Name: "MINE", Value: "x"}}})
	var names []string
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, "=")
		if !slices.Contains(spec.SlotVariables, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if want := []string{"MINE", "OTHER", "PATH"}; !slices.Equal(names, want) || err != nil {
		t.Errorf("got %q, %v; want %q", names, err, want)
	}
}

func TestMissingVariableIsNamedAtTheStartAndAMissingFileAtTheRun(t *testing.T) {
	t.Parallel()
	e := spec.Exec{Args: []string{"/bin/true"}, Env: []spec.Variable{{Name: "A", Env: "NO_SUCH_VARIABLE"}}}
	if _, err := execaction.New(e, guard.New(guard.Config{}), os.Getenv); err == nil || !strings.Contains(err.Error(), "env.A: environment variable NO_SUCH_VARIABLE is not set") {
		t.Errorf("got %v", err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	filetest.Write(t, empty, "\n")
	for path, want := range map[string]string{"/no/such/file": "no such file", t.TempDir(): "is not a regular file", empty: "is empty"} {
		_, err := output(t, spec.Exec{Args: []string{"/bin/true"}, Env: []spec.Variable{{Name: "A", File: path}}})
		if err == nil || !strings.Contains(err.Error(), `command "/bin/true": env.A: `) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestProgramIsFoundInItsFolderAndInThePathOfTheAction(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\npwd; echo $PWD\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := output(t, spec.Exec{Args: []string{"./tool"}, Dir: dir}); out != dir+"\n"+dir+"\n" || err != nil {
		t.Errorf("in its folder: got %q, %v", out, err)
	}
	if out, err := output(t, spec.Exec{Args: []string{"tool"}, Env: []spec.Variable{{Name: "PATH", Value: "relative:" + dir + ":/bin:/usr/bin"}}}); out == "" || err != nil {
		t.Errorf("in the path: got %q, %v", out, err)
	}
	for e, want := range map[*spec.Exec]string{
		{Args: []string{"tool"}, Env: []spec.Variable{{Name: "PATH", Value: "/bin"}}}: "not found in $PATH in the action's PATH",
		{Args: []string{"/bin/true"}, Dir: dir + "/none"}:                             "dir: stat " + dir + "/none: no such file",
		{Args: []string{"/bin/true"}, Dir: dir + "/tool"}:                             "it is not a folder",
	} {
		if _, err := output(t, *e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", e, err, want)
		}
		if err := execaction.Missing(*e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: missing is %v, want %q", e, err, want)
		}
	}
}

func TestSlotVariablesAreThoseThatAFileCannotSet(t *testing.T) {
	t.Parallel()
	run := newRun(nil)
	run.Shard, run.Shards = 1, 2
	out, err := output(t, spec.Exec{Args: []string{"env"}, CleanEnv: true})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if name, _, _ := strings.Cut(line, "="); name != "PATH" && !slices.Contains(spec.SlotVariables, name) {
			t.Errorf("%s is set for each run, and a file can set it", name)
		}
	}
}
