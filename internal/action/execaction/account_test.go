//go:build linux

package execaction_test

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/action/execaction"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// needRoot skips a test that changes the user.
func needRoot(t *testing.T) *user.User {
	t.Helper()
	account, err := user.Lookup("nobody")
	if err == nil && os.Geteuid() == 0 {
		return account
	}
	if os.Getenv("CRONCE_TEST_NO_SKIP") != "" {
		t.Fatalf("it needs root and the user nobody: %v", err)
	}
	t.Skip("it needs root and the user nobody")
	return nil
}

func TestCommandRunsAsAnotherUserWithItsGroupsAndHome(t *testing.T) {
	t.Parallel()
	account := needRoot(t)
	const script = `id -u; id -g; id -G; echo $HOME $USER $LOGNAME; echo out >/dev/stdout; echo err >/dev/stderr; cat /dev/stdin; cat /etc/shadow 2>/dev/null || echo refused`
	out, err := output(t, spec.Exec{Args: []string{"/bin/sh", "-c", script}, User: "nobody", Dir: "/"})
	want := strings.Join([]string{account.Uid, account.Gid, account.Gid, account.HomeDir + " nobody nobody", "out", "err", "refused", ""}, "\n")
	if out != want || err != nil {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
	out, err = output(t, spec.Exec{Args: []string{"/bin/sh", "-c", "id -u; id -g"}, User: account.Uid, Group: "daemon", Dir: "/", Env: []spec.Variable{{Name: "HOME", Value: "/mine"}}})
	if want := account.Uid + "\n1\n"; out != want || err != nil {
		t.Errorf("by numbers: got %q, %v; want %q", out, err, want)
	}
	out, err = output(t, spec.Exec{Args: []string{"/bin/sh", "-c", "id -u; id -g"}, Group: "daemon"})
	if want := "0\n1\n"; out != want || err != nil {
		t.Errorf("group only: got %q, %v; want %q", out, err, want)
	}
	out, err = output(t, spec.Exec{Args: []string{"/bin/sh", "-c", "id -u; id -g; echo $HOME"}, User: "4242", Group: "4343", Dir: "/"})
	if want := "4242\n4343\n/\n"; out != want || err != nil {
		t.Errorf("a user without an entry: got %q, %v; want %q", out, err, want)
	}
}

// Not parallel: it changes the environment.
func TestHomeIsThatOfTheUser(t *testing.T) {
	needRoot(t)
	if out, err := output(t, spec.Exec{Args: []string{"/bin/pwd"}, User: "root", Dir: "~"}); out != "/root\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := output(t, spec.Exec{Args: []string{"/bin/pwd"}, Dir: "~/"}); out != home+"\n" || err != nil {
		t.Errorf("the worker's own: got %q, %v", out, err)
	}
	t.Setenv("HOME", "")
	if out, err := output(t, spec.Exec{Args: []string{"/bin/pwd"}, Dir: "~"}); out != "/root\n" || err != nil {
		t.Errorf("without HOME: got %q, %v", out, err)
	}
}

func TestUserThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	needRoot(t)
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for e, want := range map[*spec.Exec]string{
		{User: "no-such-user"}:           `no user "no-such-user" on this machine`,
		{User: "4242"}:                   "user 4242 is not known to this machine, so it has no group: set group too",
		{Group: "no-such-group"}:         `no group "no-such-group" on this machine`,
		{User: "nobody", Dir: closed}:    "as user nobody in " + closed + ": exec /bin/true: permission denied",
		{User: "4294967295", Group: "1"}: "no user",
	} {
		e.Args = []string{"/bin/true"}
		if _, err := output(t, *e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", e, err, want)
		}
		if err := execaction.Check(*e); e.Dir == "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: check says %v, want %q", e, err, want)
		}
	}
}

// The worker reads the secret file, so the command's user needs no access to it.
func TestSecretFileIsReadByTheWorker(t *testing.T) {
	t.Parallel()
	needRoot(t)
	secret := filepath.Join(t.TempDir(), "secret")
	filetest.Write(t, secret, "s3cret\n")
	out, err := output(t, spec.Exec{Args: []string{"/bin/sh", "-c", `cat ` + secret + ` 2>/dev/null || echo "closed, and $TOKEN"`}, User: "nobody", Dir: "/", Env: []spec.Variable{{Name: "TOKEN", File: secret}}})
	if out != "closed, and s3cret\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}
