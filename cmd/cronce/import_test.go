//go:build unix

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/jobfile"
)

func TestImport(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"user":          {"crontab", "testdata/import/user.crontab", "--tz", "Europe/Berlin"},
		"system":        {"crontab", "testdata/import/system.crontab", "--tz", "UTC", "--system"},
		"user_json":     {"crontab", "testdata/import/user.crontab", "--tz", "Europe/Berlin", "-o", "json"},
		"cronjobs":      {"k8s", "testdata/import/cronjobs.yaml"},
		"cronjobs_json": {"k8s", "testdata/import/cronjobs.yaml", "-o", "json"},
	} {
		r := cli{}.run(t, append([]string{"import"}, args...)...)
		if r.code != base.ExitFound {
			t.Errorf("%s: exit status %d, want 3: something is not carried over", name, r.code)
		}
		golden(t, "import/"+name+".txt", r.stdout)
		golden(t, "import/"+name+".err", r.stderr)
		if !strings.HasSuffix(name, "_json") {
			if check := (cli{stdin: r.stdout}).run(t, "check", "-"); check.code != base.ExitDone {
				t.Errorf("%s: the file is not right: %s", name, check.stderr)
			}
		}
	}
}

func TestImportThatCarriesAllOverEndsWithZero(t *testing.T) {
	t.Parallel()
	r := cli{stdin: "PATH=/bin\n0 7 * * * report\n"}.run(t, "import", "crontab", "-", "--tz", "UTC")
	if r.code != base.ExitDone || r.stderr != "" || !strings.Contains(r.stdout, `schedule: "0 7 * * *"`) {
		t.Errorf("%+v", r)
	}
}

func TestImportOfAMachinesCrontabIsInItsZone(t *testing.T) {
	t.Parallel()
	r := cli{stdin: "0 7 * * * report\n", env: map[string]string{"TZ": ":Asia/Tokyo"}}.run(t, "import", "crontab", "-")
	if !strings.Contains(r.stdout, `timezone: "Asia/Tokyo"`) {
		t.Errorf("%+v", r)
	}
}

func TestImportRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ stdin, format, says string }{
		{"# nothing\n", "crontab", "no jobs found"},
		{"", "k8s", "no jobs found"},
		{"kind: Service\n", "k8s", "no jobs found"},
		{"a: [b", "k8s", "sequence end token"},
		{"kind: CronJob\nspec:\n  {{- toYaml .Values.spec | nindent 2 }}\n", "k8s", "helm template"},
		{strings.Repeat("[", 100_000), "k8s", "nested too deeply"},
		{strings.Repeat("#", 5<<20), "crontab", "larger than 4 MiB"},
	} {
		r := cli{stdin: c.stdin}.run(t, "import", c.format, "-")
		if r.code != base.ExitUsage || !strings.Contains(r.stderr, c.says) || r.stdout != "" {
			t.Errorf("%s of %.20q: %d, %q, want status 2 and %q", c.format, c.stdin, r.code, r.stderr, c.says)
		}
	}
	r := cli{stdin: "0 7 * * * a\n"}.run(t, "import", "crontab", "-", "--tz", "Mars/Olympus")
	if r.code != base.ExitFound || !strings.Contains(r.stderr, "Mars/Olympus") || r.stdout != "" {
		t.Errorf("an unknown zone: %+v", r)
	}
}

// The command of an imported line does under a shell what cron did: with its
// environment, and what follows a percent sign on its standard input.
func TestImportedCommandDoesWhatItDidUnderCron(t *testing.T) {
	t.Parallel()
	r := cli{stdin: "GREETING='hello there'\n0 7 * * * echo \"$GREETING\" 100\\%; cat; exit 7%it's%two%\n"}.run(t, "import", "crontab", "-", "--tz", "UTC")
	file, err := jobfile.Parse("f", []byte(r.stdout))
	if err != nil || len(file.Jobs) != 1 {
		t.Fatalf("%v: %+v", err, r)
	}
	argv := file.Jobs[0].Action.Exec
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := cmd.Output()
	if string(out) != "hello there 100%\nit's\ntwo\n" || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%q, %v", out, err)
	}
}
