package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/broker/layout"
)

func TestAuthPrintsThePermissionsOfARole(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"auth_viewer.txt":     {"auth", "viewer"},
		"auth_worker_nsc.txt": {"auth", "worker", "--queue", "reports", "--job", "report", "--format", "nsc", "--inbox-prefix", "_INBOX.reports"},
		"auth_setup.json":     {"auth", "setup", "--namespace", "billing", "-o", "json"},
		"auth_caller.txt":     {"auth", "caller", "--job", "report"},
		"auth_domain.txt":     {"auth", "operator", "--js-domain", "hub", "--login", "ops@hub"},
		"auth_accounts.conf":  {"auth", "--accounts"},
	} {
		r := cli{}.run(t, args...)
		if r.code != base.ExitDone || r.stderr != "" {
			t.Fatalf("%v: %+v", args, r)
		}
		golden(t, name, r.stdout)
	}
}

// authOf is the command for one role, with what it needs.
func authOf(role layout.Role) []string {
	if role == layout.RoleCaller {
		return []string{"auth", string(role), "--job", "report"}
	}
	return []string{"auth", string(role)}
}

func TestAuthOfACallerNeedsItsJobs(t *testing.T) {
	t.Parallel()
	if r := (cli{}).run(t, "auth", "caller"); r.code != base.ExitUsage || !strings.Contains(r.stderr, "name at least one job") {
		t.Errorf("%+v, want wrong usage", r)
	}
}

// With a permission to answer on any reply subject, a login that asks itself may
// publish anywhere.
func TestAuthPermitsNoAnswersOnSubjectsThatARequestNames(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--format", "server"}, {"--format", "nsc"}, {"--accounts"}} {
		for _, role := range layout.Roles() {
			r := cli{}.run(t, append(authOf(role), args...)...)
			if r.code != base.ExitDone || strings.Contains(r.stdout, "response") && args[0] == "--format" || strings.Contains(r.stdout, "allow_responses") {
				t.Errorf("auth %s %v: %d\n%s", role, args, r.code, r.stdout)
			}
		}
	}
}

// The three forms say the same.
func TestAuthFormsAgree(t *testing.T) {
	t.Parallel()
	quoted := regexp.MustCompile(`(?m)^ +"(.*)"$|--allow-(?:pub|sub) '(.*?)'`)
	for _, role := range layout.Roles() {
		want := map[string]bool{}
		for line := range strings.Lines(cli{}.run(t, append(authOf(role), "-o", "json")...).stdout) {
			var g struct{ Publish, Subscribe []string }
			if err := json.Unmarshal([]byte(line), &g); err != nil {
				t.Fatal(err)
			}
			for _, s := range slices.Concat(g.Publish, g.Subscribe) {
				want[s] = true
			}
		}
		for _, format := range []string{"server", "nsc"} {
			got := map[string]bool{}
			for _, m := range quoted.FindAllStringSubmatch(cli{}.run(t, append(authOf(role), "--format", format)...).stdout, -1) {
				got[m[1]+m[2]] = true
			}
			if len(got) != len(want) || len(got) == 0 {
				t.Errorf("%s as %s: %d subjects, want %d", role, format, len(got), len(want))
			}
			for s := range got {
				if !want[s] {
					t.Errorf("%s as %s: %s is not granted", role, format, s)
				}
			}
		}
	}
}

func TestAuthRefusesWhatItCannotPrint(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		`role "root": want one of producer, worker`: {"auth", "root"},
		"requires at least 1 arg":                   {"auth"},
		`format "yaml"`:                             {"auth", "viewer", "--format", "yaml"},
		`queue name "a.>"`:                          {"auth", "worker", "--queue", "a.>"},
		`job name "*"`:                              {"auth", "worker", "--job", "*"},
		"only a worker can":                         {"auth", "viewer", "--job", "report"},
		`domain name "a.b"`:                         {"auth", "viewer", "--js-domain", "a.b"},
		`inbox prefix name ">"`:                     {"auth", "viewer", "--inbox-prefix", "_INBOX.>"},
		`namespace name "a b"`:                      {"auth", "viewer", "--namespace", "a b"},
		"--login":                                   {"auth", "viewer", "--login", "x' ; rm -rf '"},
		"leave out --login":                         {"auth", "--accounts", "--login", "x"},
		`role "root"`:                               {"auth", "--accounts", "producer+root"},
		"another account has the name":              {"auth", "--accounts", "viewer", "viewer"},
		"use one login for both":                    {"auth", "--accounts", "operator", "operator+worker"},
	} {
		r := cli{}.run(t, args...)
		if r.code != base.ExitUsage || r.stdout != "" || !strings.Contains(r.stderr, says) {
			t.Errorf("%v: %+v, want an error on %s", args, r, says)
		}
	}
}
