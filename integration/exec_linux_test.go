package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// otherUser is the number of the user "nobody".
const otherUser = 65534

func needRoot(t *testing.T) {
	t.Helper()
	why := ""
	if os.Geteuid() != 0 {
		why = "the tests do not run as root"
	}
	need(t, "root", why)
}

// The worker runs as root, the command as a user without rights, and no value of env is anywhere but in the
// command.
func TestCommandRunsAsItsUserAndItsSecretsStayInIt(t *testing.T) {
	t.Parallel()
	needRoot(t)
	s := newServedSite(t)
	secret := s.write("secret", "swordfish-from-file\n")
	file := s.write("jobs.yaml", `version: 1
jobs:
  - name: as
    schedule: none
    retry: {attempts: 1}
    action:
      exec: ["/bin/sh", "-c", "id -u; pwd; echo $HOME; test -n \"$PLAIN\" && test -n \"$TOKEN\" && echo both; cat `+secret+` || exit 3"]
      dir: /
      user: nobody
      clean_env: true
      env: {PLAIN: swordfish-in-file, TOKEN: {file: `+secret+`}}
`)
	w := s.worker("w1", file, "--log-level", "debug")
	w.says("node is up")
	p := s.start("trigger", "job", "trigger", "as", "--key", "k")
	if p.exit() != 0 {
		t.Fatal(p.stderr())
	}
	var r slotRow
	eventually(t, "the run to fail", func() bool {
		rows := s.slots("--job", "as", "--state", "failed")
		if len(rows) == 1 {
			r = rows[0]
		}
		return len(rows) == 1
	})
	output := r.Output
	if !strings.HasPrefix(output, "65534\n/\n") || !strings.Contains(output, "\nboth\n") || !strings.Contains(output, "Permission denied") || !strings.Contains(r.Error, "exit status 3") {
		t.Errorf("the command wrote %q and ended with %q", output, r.Error)
	}
	show := s.start("show", "job", "show", "as")
	show.exit()
	entry, err := s.bucket("jobs").Get(t.Context(), "as")
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"log": w.stderr(), "job show": show.stdout(), "registry": string(entry.Value())} {
		if strings.Contains(text, "swordfish") {
			t.Errorf("a value of env is in the %s: %s", where, text)
		}
	}
}

// A worker that cannot switch to the user of a job refuses to start. A node that only produces may read the
// same file.
func TestWorkerThatIsNotRootRefusesAnotherUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	s := newSite(t)
	s.url = natstest.Run(t).ClientURL()
	file := s.write("jobs.yaml", "version: 1\njobs: [{name: as, schedule: none, action: {exec: [/bin/true], user: root}}]\n")
	for dir := filepath.Dir(file); strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUser, Gid: otherUser}}
	refusal{status: 1, says: []string{"job as: cannot run commands as user root: this process is user 65534, and only root can"}}.check(t, s.worker("w1", file))
	s.worker("w2", file, "--no-work").says("node is up")
}

func TestMissingVariableOfACommandIsAFailureAtTheStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.url = natstest.Run(t).ClientURL()
	file := s.write("jobs.yaml", "version: 1\njobs: [{name: as, schedule: none, action: {exec: [/bin/true], env: {TOKEN: {env: NO_SUCH_TOKEN}}}}]\n")
	refusal{status: 1, says: []string{"job as: env.TOKEN: environment variable NO_SUCH_TOKEN is not set"}}.check(t, s.worker("w1", file))
}
