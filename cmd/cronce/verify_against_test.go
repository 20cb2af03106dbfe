package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// shadow records a slot of the archive that was claimed and not run.
func (f *fixture) shadow(t *testing.T, s job.Slot) {
	t.Helper()
	f.record(t, job.Record{
		Slot: s, Queue: "default", Due: s.At, Published: s.At, Node: "w1", Attempt: 1, Shadow: 1, Finished: s.At.Add(time.Millisecond),
		Attempts: []job.Attempt{{Number: 1, Node: "w1", Started: s.At, Finished: s.At.Add(time.Millisecond)}},
	}, job.Succeeded)
}

const shadowCrontab = `CRON_TZ=UTC
0 * * * *  /srv/report.sh --all
30 6 * * * /srv/tidy.sh
30 7 * * * /srv/tidy.sh
5 * * * *  printf '100\%'; cat %hello
`

func TestVerifyAgainstALogListsWhatOnlyOneSideRan(t *testing.T) {
	t.Parallel()
	f := newArchive(t)
	f.now = at("2026-03-29T00:00:00Z")
	since := at("2026-03-28T05:30:00Z")
	for name, schedule := range map[string]string{"tidy": "30 6 * * *", "tidy-2": "30 7 * * *", "printf-100-cat": "5 * * * *"} {
		f.define(t, plans.Definition{Job: job.Job{Name: name, Schedule: schedule}, Since: since})
	}
	slot := func(name, clock string) job.Slot { return job.NewSlot(name, at("2026-03-28T"+clock+"Z")) }
	f.shadow(t, slot("report", "06:00:00"))
	f.shadow(t, slot("report", "07:00:00"))
	f.shadow(t, slot("report", "08:00:00"))
	f.record(t, job.Record{Slot: slot("report", "09:00:00"), Queue: "default", Due: slot("report", "09:00:00").At, Node: "w1"}, job.Missed)
	f.succeed(t, slot("report", "10:00:00"), time.Second)
	f.shadow(t, slot("tidy", "06:30:00"))
	f.shadow(t, slot("tidy-2", "07:30:00"))
	f.shadow(t, slot("printf-100-cat", "06:05:00"))
	f.record(t, job.Record{Slot: job.Slot{Job: "report", Token: "by-hand"}, Published: at("2026-03-28T08:10:00Z"), Node: "w1", Attempt: 1}, job.Running, job.Succeeded)
	dir := t.TempDir()
	file := filepath.Join(dir, "imported.yaml")
	r := cli{stdin: shadowCrontab}.run(t, "import", "crontab", "-", "--shadow")
	if err := os.WriteFile(file, []byte(r.stdout), 0o644); err != nil || r.code != base.ExitFound { // CRON_TZ is carried over with a note
		t.Fatalf("%v, %+v", err, r)
	}
	log := func(lines ...string) string {
		t.Helper()
		path := filepath.Join(dir, "log")
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	lines := []string{
		"Mar 28 05:05:01 web1 CRON[1]: (ada) CMD (printf '100%'; cat )", // the job was not there yet
		"Mar 28 06:00:01 web1 CRON[2]: (ada) CMD (/srv/report.sh --all)",
		"Mar 28 06:00:01 web1 CRON[2]: pam_unix(cron:session): session opened for user ada",
		"Mar 28 06:05:02 web1 CRON[3]: (ada) CMD (printf '100%'; cat )",
		"Mar 28 06:30:01 web1 CRON[4]: (ada) CMD (/srv/tidy.sh)",
		"Mar 28 07:30:01 web1 CRON[5]: (ada) CMD (/srv/tidy.sh)",
		"Mar 28 08:00:01 web1 CRON[6]: (ada) CMD (/srv/report.sh --all)",
		"Mar 28 09:00:01 web1 CRON[7]: (ada) CMD (/srv/report.sh --all)",
		"Mar 28 10:00:01 web1 CRON[8]: (ada) CMD (/srv/report.sh --all)",
		"Mar 28 10:17:01 web1 CRON[9]: (root) CMD (cd / && run-parts --report /etc/cron.hourly)",
		"no line of a log",
		"Mar 28 10:30:00 web1 systemd[1]: Started ssh.service - OpenBSD Secure Shell server.",
	}
	for format, name := range map[string]string{"text": "verify_against.txt", "json": "verify_against.json"} {
		r := f.run(t, "verify", "--against", log(lines...), "-f", file, "--tz", "UTC", "-o", format)
		if r.code != base.ExitFound || !strings.Contains(r.stderr, "1 runs only here, 2 only in the log") || !strings.Contains(r.stderr, "first=11") {
			t.Errorf("%s: status %d, %s", format, r.code, r.stderr)
		}
		golden(t, name, r.stdout)
	}
	// The names of jobs need no file.
	same := []string{"2026-03-28T06:00:01Z report", "2026-03-28T07:00:00.5Z report", "2026-03-28T08:00:01Z report", "2026-03-28T08:30:00Z report-of-another-day"}
	if r := f.run(t, "verify", "--against", log(same[:3]...), "--job", "report"); r.code != base.ExitDone || r.stderr != "" {
		t.Errorf("what is the same: %+v", r)
	}
	// A line that names its job is of no other job, even one with the same command.
	named := log("2026-03-28T06:30:01Z tidy", "2026-03-28T07:30:01Z tidy")
	r = f.run(t, "verify", "--against", named, "-f", file, "--job", "tidy", "--job", "tidy-2")
	if r.code != base.ExitFound || !strings.Contains(r.stderr, "0 runs only here, 1 only in the log") || strings.Contains(r.stdout, "same command") {
		t.Errorf("lines that name their jobs: %+v", r)
	}
	// A timer with two times is two jobs, and the journal names only their service.
	units := filepath.Join(dir, "units.yaml")
	if err := os.WriteFile(units, []byte(twoTimes), 0o644); err != nil {
		t.Fatal(err)
	}
	journal := log("2026-03-28T06:30:00+0000 web1 systemd[1]: Starting tidy.service...", "2026-03-28T07:30:00+0000 web1 systemd[1]: Starting tidy.service...")
	if r := f.run(t, "verify", "--against", journal, "-f", units, "--job", "tidy", "--job", "tidy-2"); r.code != base.ExitDone || !strings.Contains(r.stdout, "with tidy-2, which has the same command") {
		t.Errorf("a timer with two times: %+v", r)
	}
	// The log has the name that import changed.
	renamed := log("2026-03-28T06:30:01Z tidy", "2026-03-28T07:30:01Z tidy #2")
	if r := f.run(t, "verify", "--against", renamed, "-f", units, "--job", "tidy", "--job", "tidy-2"); r.code != base.ExitDone || r.stderr != "" {
		t.Errorf("a job that import renamed: %+v", r)
	}
	r = f.run(t, "verify", "--against", log(same...))
	if r.code != base.ExitFound || !strings.Contains(r.stdout, "not in the registry") {
		t.Errorf("a job that is only in the log: %+v", r)
	}
}

// twoTimes is what is imported from a timer with two OnCalendar.
const twoTimes = `version: 1
jobs:
  - {name: tidy, schedule: "30 6 * * *", shadow: true, action: {exec: [/srv/tidy, --all]}}
  - {name: tidy-2, schedule: "30 7 * * *", shadow: true, action: {exec: [/srv/tidy, --all]}}
`

func TestVerifyAgainstRefuses(t *testing.T) {
	t.Parallel()
	c := cli{stdin: "Nov 21 07:00:01 web1 kernel: no run\nwhatever\n", env: map[string]string{"CRONCE_SERVER": "127.0.0.1:1"}}
	for says, args := range map[string][]string{
		"--tolerance needs --against":           {"--tolerance", "2m"},
		"--repair and --against at once":        {"--against", "-", "--repair"},
		`invalid --tolerance "0s"`:              {"--against", "-", "--tolerance", "0s"},
		"only one of them can be standard":      {"--against", "-", "-f", "-"},
		`invalid --tz "Mars/Olympus"`:           {"--against", "-", "--tz", "Mars/Olympus"},
		"no such file":                          {"--against", "/nowhere/log"},
		"nothing of that is from 2026-12-01T00": {"--against", "-", "--from", "2026-12-01T00:00:00Z"},
	} {
		if strings.HasPrefix(says, "nothing") {
			f := newFixture(t)
			f.stdin = "2026-11-21T07:00:01Z report\n"
			f.run(t, append([]string{"verify"}, args...)...).oneError(t, base.ExitUsage, says)
			continue
		}
		c.run(t, append([]string{"verify"}, args...)...).oneError(t, base.ExitUsage, says)
	}
	c.stdin = "whatever\n"
	c.run(t, "verify", "--against", "-").oneError(t, base.ExitUsage, "no line is a run", "2026-11-21T07:00:01Z report")
}
