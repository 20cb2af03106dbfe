//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/lab/filetest"
)

func TestImport(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"user":          {"crontab", "testdata/import/user.crontab", "--tz", "Europe/Berlin"},
		"system":        {"crontab", "testdata/import/system.crontab", "--tz", "UTC", "--system"},
		"user_json":     {"crontab", "testdata/import/user.crontab", "--tz", "Europe/Berlin", "-o", "json"},
		"shadow":        {"crontab", "testdata/import/system.crontab", "--tz", "UTC", "--system", "--shadow"},
		"systemd":       {"systemd", "testdata/import/units/backup.timer", "testdata/import/units/sync.timer", "--tz", "Europe/Berlin"},
		"systemd_cat":   {"systemd", "testdata/import/systemctl.txt", "--tz", "UTC", "-o", "json"},
		"systemd_json":  {"systemd", "testdata/import/units/sync.timer", "testdata/import/units/backup.timer", "--tz", "UTC", "-o", "json"},
		"sidekiq":       {"sidekiq", "testdata/import/sidekiq.yml", "--tz", "Europe/Berlin"},
		"scheduler":     {"sidekiq", "testdata/import/scheduler.yml"},
		"github":        {"github", "testdata/import/nightly.yml"},
		"cronjobs":      {"k8s", "testdata/import/cronjobs.yaml"},
		"cronjobs_json": {"k8s", "testdata/import/cronjobs.yaml", "-o", "json"},
	} {
		r := cli{}.run(t, append([]string{"import"}, args...)...)
		want := base.ExitFound // something is not carried over
		if name == "system" || name == "shadow" {
			want = base.ExitDone
		}
		if r.code != want {
			t.Errorf("%s: exit status %d, want %d", name, r.code, want)
		}
		golden(t, "import/"+name+".txt", r.stdout)
		golden(t, "import/"+name+".err", r.stderr)
		if !strings.HasSuffix(name, "_json") && name != "systemd_cat" {
			if check := (cli{stdin: r.stdout}).run(t, "check", "-"); check.code != base.ExitDone {
				t.Errorf("%s: the file is not right: %s", name, check.stderr)
			}
		}
	}
}

// The same text is the same jobs, whatever program has saved it.
func TestTextIsReadAlikeInEveryFormInWhichAFileIsSaved(t *testing.T) {
	t.Parallel()
	const jobs = "version: 1\njobs:\n  - name: a\n    schedule: \"0 7 * * *\"\n    payload: |\n      x\n      y\n    action: {exec: [/bin/true]}\n"
	for command, text := range map[string]string{
		"import crontab --tz UTC -": "PATH=/bin\n0 7 * * * report\n",
		"import systemd --tz UTC -": "# /etc/systemd/system/a.timer\n[Timer]\nOnCalendar=daily\n# /etc/systemd/system/a.service\n[Service]\nExecStart=/bin/a \\\n  b\n",
		"import k8s -":              "kind: CronJob\nmetadata: {name: a}\nspec:\n  schedule: \"0 7 * * *\"\n  jobTemplate: {spec: {template: {spec: {containers: [{command: [/bin/a, \"x\n    y\"]}]}}}}\n",
		"import sidekiq -":          "a:\n  cron: \"0 7 * * *\"\n  class: A\n  args: |\n    x\n    y\n",
		"import github -":           "name: a\non:\n  schedule:\n    - cron: \"0 7 * * *\"\n",
		"check -":                   jobs,
		"next -f -":                 jobs,
	} {
		want := cli{stdin: text}.run(t, strings.Fields(command)...)
		if !strings.Contains(want.stdout, "a") || want.code != base.ExitDone && want.code != base.ExitFound {
			t.Errorf("%s: %+v", command, want)
		}
		windows := strings.ReplaceAll(text, "\n", "\r\n")
		units := []byte{0xff, 0xfe}
		for _, unit := range utf16.Encode([]rune(windows)) {
			units = append(units, byte(unit), byte(unit>>8))
		}
		for form, saved := range map[string]string{"CRLF": windows, "a byte order mark": "\ufeff" + text, "both": "\ufeff" + windows, "UTF-16": string(units)} {
			if got := (cli{stdin: saved}).run(t, strings.Fields(command)...); got != want {
				t.Errorf("%s with %s: %+v, want %+v", command, form, got, want)
			}
		}
	}
}

// What stands beside a timer and changes it is read with it.
func TestATimersNeighboursAreRead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files    map[string]string
		args     string
		schedule string
		exec     string
	}{
		"a drop-in of the timer": {
			map[string]string{"k.timer": "[Timer]\nOnCalendar=daily\n", "k.service": "[Service]\nExecStart=/bin/k\n", "k.timer.d/override.conf": "[Timer]\nOnCalendar=\nOnCalendar=Mon 04:00\n"},
			"k.timer", `"0 4 * * 1"`, `["/bin/k"]`,
		},
		"a drop-in of the service": {
			map[string]string{"k.timer": "[Timer]\nOnCalendar=daily\n", "k.service": "[Service]\nExecStart=/bin/k\n", "k.service.d/a.conf": "[Service]\nExecStart=\nExecStart=/bin/k --new\n"},
			"k.timer", `"0 0 * * *"`, `["/bin/k","--new"]`,
		},
		"a drop-in that is named before its unit": {
			map[string]string{"k.timer": "[Timer]\nOnCalendar=daily\n", "k.service": "[Service]\nExecStart=/bin/k\n", "k.service.d/a.conf": "[Service]\nExecStart=\nExecStart=/bin/k --new\n"},
			"k.service.d/a.conf k.service k.timer", `"0 0 * * *"`, `["/bin/k","--new"]`,
		},
		"two drop-ins, by name": {
			map[string]string{"k.timer": "[Timer]\nOnCalendar=daily\n", "k.service": "[Service]\nExecStart=/bin/k\n", "k.timer.d/20.conf": "[Timer]\nOnCalendar=\nOnCalendar=04:00\n", "k.timer.d/10.conf": "[Timer]\nOnCalendar=\nOnCalendar=05:00\n"},
			"k.timer.d/20.conf k.timer.d/10.conf k.timer", `"0 4 * * *"`, `["/bin/k"]`,
		},
		"a service of another name": {
			map[string]string{"nightly.timer": "[Timer]\nOnCalendar=daily\nUnit=backup.service\n", "backup.service": "[Service]\nExecStart=/bin/b\n"},
			"nightly.timer", `"0 0 * * *"`, `["/bin/b"]`,
		},
		"a service that a drop-in names": {
			map[string]string{"k.timer": "[Timer]\nOnCalendar=daily\n", "k.timer.d/u.conf": "[Timer]\nUnit=b@1.service\n", "b@.service": "[Service]\nExecStart=/bin/b %i\n", "b@1.service.d/x.conf": "[Service]\nExecStart=\nExecStart=/bin/b %i --new\n"},
			"k.timer", `"0 0 * * *"`, `["/bin/b","1","--new"]`,
		},
	} {
		dir := t.TempDir()
		for file, text := range tc.files {
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
				t.Fatal(err)
			}
			filetest.Write(t, filepath.Join(dir, file), text)
		}
		args := []string{"import", "systemd", "--tz", "UTC"}
		for _, file := range strings.Fields(tc.args) {
			args = append(args, filepath.Join(dir, file))
		}
		r := cli{}.run(t, args...)
		if !strings.Contains(r.stdout, "schedule: "+tc.schedule+"\n") || !strings.Contains(r.stdout, `action: {"exec":`+tc.exec+"}\n") || strings.Count(r.stdout, "- name:") != 1 {
			t.Errorf("%s: %+v, want schedule %s and exec %s", name, r, tc.schedule, tc.exec)
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
	for tz, want := range map[string]string{":Asia/Tokyo": "Asia/Tokyo", "/usr/share/zoneinfo/Asia/Tokyo": "Asia/Tokyo", "CET-1CEST": "UTC"} {
		r := cli{stdin: "0 7 * * * report\n", env: map[string]string{"TZ": tz}}.run(t, "import", "crontab", "-")
		if !strings.Contains(r.stdout, "timezone: \""+want+"\"") || (want == "UTC") != strings.Contains(r.stderr, "TZ names no time zone") {
			t.Errorf("%s: %+v", tz, r)
		}
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
		{strings.Repeat("[", 100_000), "sidekiq", "nested too deeply"},
		{nestedAliases(20), "sidekiq", "aliases stand for more than 100000 values"},
		{"a:\n  cron: <%= ENV['X'] %>\n", "sidekiq", "import the output of ERB"},
		{"on: push\n", "github", "no jobs found"},
		{"", "systemd", "no jobs found"},
		{strings.Repeat("#", 5<<20), "crontab", "larger than 4 MiB"},
	} {
		r := cli{stdin: c.stdin}.run(t, "import", c.format, "-")
		if r.code != base.ExitUsage || !strings.Contains(r.stderr, c.says) || r.stdout != "" {
			t.Errorf("%s of %.20q: %d, %q, want status 2 and %q", c.format, c.stdin, r.code, r.stderr, c.says)
		}
	}
	for _, format := range []string{"crontab", "systemd", "k8s", "sidekiq"} {
		r := cli{stdin: "0 7 * * * a\n"}.run(t, "import", format, "-", "--tz", "Mars/Olympus")
		if r.code != base.ExitUsage || !strings.Contains(r.stderr, "--tz") || !strings.Contains(r.stderr, "Mars/Olympus") || r.stdout != "" {
			t.Errorf("%s, an unknown zone: %+v", format, r)
		}
	}
}

// nestedAliases returns a text of n lines that stands for more than 2 to the power of n values.
func nestedAliases(n int) string {
	text := "a0: &a0 [x]\n"
	for i := range n {
		text += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	return text
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
	action := file.Jobs[0].Action.Exec
	cmd := exec.Command(action.Args[0], action.Args[1:]...)
	for _, v := range action.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	out, err := cmd.Output()
	if string(out) != "hello there 100%\nit's\ntwo\n" || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%q, %v", out, err)
	}
}
