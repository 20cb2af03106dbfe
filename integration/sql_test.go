//go:build long && unix

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// unprivileged is the ID of a user that owns nothing, on every Unix.
const unprivileged = 65534

// postgres starts a database for the test, which listens on a socket only. It returns the environment for psql.
func postgres(t *testing.T) (env []string) {
	t.Helper()
	_, missing := lookPath("psql")
	need(t, "psql in PATH", missing)
	initdb, missing := lookPath("initdb")
	need(t, "PostgreSQL's initdb in PATH", missing)
	server, missing := lookPath("postgres")
	need(t, "PostgreSQL's postgres in PATH", missing)
	// Not t.TempDir: a socket's path must be short, and the database has a user of its own.
	dir, err := os.MkdirTemp("", "cronce-pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var as *syscall.SysProcAttr
	if os.Getuid() == 0 { // PostgreSQL does not run as root
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
		if err := os.Chown(dir, unprivileged, unprivileged); err != nil {
			t.Fatal(err)
		}
	}
	env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "PGHOST=" + dir, "PGUSER=postgres", "PGDATABASE=postgres"}
	data := filepath.Join(dir, "data")
	init := start(t, "initdb", env, as, initdb, "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "--locale=C")
	if code := init.exit(); code != 0 {
		t.Fatalf("initdb ends with %d: %s", code, init.stderr())
	}
	p := start(t, "postgres", env, as, server, "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	p.says("ready to accept connections")
	t.Cleanup(func() { // runs before the process is killed, which its children would outlive
		p.signal(syscall.SIGQUIT)
		p.exit()
	})
	return env
}

func query(t *testing.T, env []string, sql string) string {
	t.Helper()
	cmd := exec.Command("psql", "-X", "-q", "-A", "-t", "-c", sql)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", sql, err, out)
	}
	return strings.TrimSpace(string(out))
}

// A process is suspended for longer than its lease, and another one takes its slot over. The first handler wakes up
// and writes with its old fence: in one case before the second attempt pays, in the other after that. It is refused
// in both. The second attempt pays and then fails, and the third one finds the payment and pays nothing.
// (examples/sql)
func TestStatementWithSlotAndFencePaysOnceBesideAZombie(t *testing.T) {
	t.Parallel()
	env := postgres(t)
	for _, paysFirst := range []bool{false, true} {
		t.Run(map[bool]string{false: "the zombie is first to write", true: "the new one is first to write"}[paysFirst], func(t *testing.T) {
			s := newServedSite(t)
			s.command(0, "setup", "--lease", lease.String())
			before := balance(t, env)
			bin := program(t, sqlExample) // building takes time, so the instant is chosen afterwards
			instant := soon()
			pay := func(name string) *process {
				args := []string{"-at", instant.UTC().Format(time.RFC3339), "-hold", s.dir}
				return start(t, name, append(env, "NATS_URL="+s.url), nil, bin, args...)
			}
			a := pay("a")
			eventually(t, "the first attempt", func() bool { return strings.Contains(a.stdout(), "attempt 1 fence") })
			b := pay("b")
			a.signal(syscall.SIGSTOP)
			eventually(t, "the second attempt", func() bool { return strings.Contains(b.stdout(), "attempt 2 fence") })
			s.write("lost-2", "")
			release := func(attempt int) { s.write(strconv.Itoa(attempt), "") }
			zombie := func() {
				a.signal(syscall.SIGCONT)
				release(1)
				eventually(t, "the zombie to be refused", func() bool { return strings.Contains(a.stdout(), "refused") })
			}
			if paysFirst {
				release(2)
				s.ends(slotID("pay", instant), "succeeded")
				zombie()
			} else {
				zombie()
				if got := balance(t, env); got != before {
					t.Errorf("the zombie paid: the balance went from %d to %d", before, got)
				}
				release(2)
			}
			r := s.ends(slotID("pay", instant), "succeeded")
			if got := balance(t, env); got != before+10 || r.Attempt != 3 {
				t.Errorf("attempt %d succeeded, and the balance went from %d to %d; want attempt 3, and 10 more", r.Attempt, before, got)
			}
			said := a.stdout() + b.stdout()
			for what, n := range map[string]int{"begun": 2, "paid": 1, "refused": 1, "done already": 1} {
				if got := strings.Count(said, ": "+what+"\n"); got != n {
					t.Errorf("%q was said %d times, want %d:\n%s", what, got, n, said)
				}
			}
			term(a)
			term(b)
			query(t, env, "DELETE FROM cronce_effects")
		})
	}
}

func balance(t *testing.T, env []string) (n int) {
	t.Helper()
	if query(t, env, "SELECT to_regclass('accounts') IS NOT NULL") != "t" {
		return 0
	}
	if _, err := fmt.Sscan(query(t, env, "SELECT balance FROM accounts WHERE name = 'ada'"), &n); err != nil {
		t.Fatal(err)
	}
	return n
}
