package migrate

import (
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/migrate/unitfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

func systemdOf(timer, service string) Result {
	return Systemd([]unitfile.File{{Path: "x.timer", Text: "[Timer]\n" + timer}, {Path: "x.service", Text: "[Service]\n" + service}}, "UTC")
}

var elapses = regexp.MustCompile(`\w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC`)

// calendarRuns asks systemd itself. For some expressions, systemd finds no next time on a day when
// clocks change: then known is false.
func calendarRuns(t *testing.T, expression string, from, to time.Time) (runs []time.Time, known bool) {
	t.Helper()
	cmd := exec.Command("systemd-analyze", "calendar", fmt.Sprintf("--iterations=%d", mostRuns), "--base-time="+from.Format("2006-01-02 15:04:05 UTC"), expression)
	cmd.Env = append(os.Environ(), "TZ=UTC")
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "Resource deadlock avoided") {
		return nil, false
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", expression, err, out)
	}
	for _, m := range elapses.FindAllStringSubmatch(string(out), -1) {
		at, err := time.Parse("2006-01-02 15:04:05", m[1])
		if err != nil {
			t.Fatal(err)
		}
		if at.Before(to) {
			runs = append(runs, at)
		}
	}
	return runs, true
}

const mostRuns = 60

// drawCalendar draws a part of a calendar expression. A start and its step stay within the field,
// because systemd refuses others.
func drawCalendar(t *rapid.T, name string, low, high int) string {
	a, b := rapid.IntRange(low, high).Draw(t, name), rapid.IntRange(low, high).Draw(t, name+" too")
	switch rapid.IntRange(0, 5).Draw(t, name+" kind") {
	case 0:
		return "*"
	case 1:
		return fmt.Sprintf("%d..%d", min(a, b), max(a, b))
	case 2:
		return fmt.Sprintf("%d/%d", a/2+low, rapid.IntRange(2, 12).Draw(t, name+" step"))
	case 3:
		return fmt.Sprintf("%d,%d", a, b)
	}
	return fmt.Sprint(a)
}

// calendarCase is an expression, and the time to compare from.
type calendarCase struct {
	expression string
	from       time.Time
}

func drawCalendarCase(t *rapid.T) calendarCase {
	zone := rapid.SampledFrom([]string{"Europe/Berlin", "America/New_York", "UTC"}).Draw(t, "zone")
	days := changes[zone]
	if len(days) == 0 {
		days = changes["Europe/Berlin"]
	}
	weekday := rapid.SampledFrom([]string{"", "", "Mon..Fri ", "Sun ", "Sat,Sun ", "Tue,Thu..Sat "}).Draw(t, "weekday")
	date := rapid.SampledFrom([]string{"*-*-*", "*-*-" + drawCalendar(t, "day", 1, 28), "2026-*-*"}).Draw(t, "date")
	second := rapid.SampledFrom([]string{"00", "00", "30", "0/20"}).Draw(t, "second")
	return calendarCase{
		fmt.Sprintf("%s%s %s:%s:%s %s", weekday, date, drawCalendar(t, "hour", 0, 5), drawCalendar(t, "minute", 0, 59), second, zone),
		rapid.SampledFrom(days).Draw(t, "from"),
	}
}

func TestAServicesCommandIsThatOfTheJob(t *testing.T) {
	t.Parallel()
	for service, want := range map[string][]string{
		`ExecStart=/bin/echo one "two three" 'four'"five" a\x20`:           nil,
		`ExecStart=/bin/echo one "two three" 'four'"five" \s \"`:           {"/bin/echo", "one", "two three", "fourfive", " ", `"`},
		"Environment=A=1 \"B=2 3\"\nExecStart=/bin/echo ${A}x $B $$ %p %%": {"/bin/echo", "1x", "2", "3", "$", "x", "%"},
		"ExecStart=:/bin/echo ${A} $$":                                     {"/bin/echo", "${A}", "$$"},
		"ExecStart=@/bin/sh ash -c true":                                   {"/bin/sh", "-c", "true"},
		"ExecStart=/old\nExecStart=\nExecStart=/new \\\n  --more":          {"/new", "--more"},
		"ExecStart=/a\nExecStart=-/b 'it is'":                              {"/bin/sh", "-c", "set -e\n/a\n/b 'it is' || :"},
		"ExecStart=/bin/a ; /bin/b":                                        nil,
		"User=ada":                                                         nil,
	} {
		r := systemdOf("OnCalendar=daily", service)
		if want == nil {
			if len(r.Jobs) != 0 || len(r.Notes) != 1 {
				t.Errorf("%s: %+v", service, r)
			}
			continue
		}
		if len(r.Jobs) != 1 || !slices.Equal(r.Jobs[0].Exec.Args, want) {
			t.Errorf("%s: %+v, want %q", service, r, want)
		}
	}
}

func TestATimersSettingsBecomeThoseOfTheJob(t *testing.T) {
	t.Parallel()
	r := systemdOf("OnCalendar=hourly\nPersistent=yes\nRandomizedDelaySec=1min 30s\nFixedRandomDelay=1\n",
		"Type=oneshot\nExecStart=/bin/true\nUser=ada\nGroup=staff\nWorkingDirectory=~\nTimeoutStartSec=5min\n")
	want := job.Job{
		Name: "x", Schedule: "0 * * * *", Timezone: "UTC", Spread: 90 * time.Second, Timeout: 5 * time.Minute,
		Overlap: job.OverlapSkip, Retry: job.Retry{Attempts: 1}, CatchUp: job.CatchUp{Policy: job.CatchUpLatest},
	}
	if len(r.Jobs) != 1 || !reflect.DeepEqual(r.Jobs[0].Job, want) || !reflect.DeepEqual(r.Jobs[0].Exec, spec.Exec{Args: []string{"/bin/true"}, User: "ada", Group: "staff", Dir: "~"}) {
		t.Errorf("%+v", r)
	}
	r = systemdOf("OnBootSec=1min\nOnUnitActiveSec=1h 30min\n", "ExecStart=/bin/true")
	if len(r.Jobs) != 1 || r.Jobs[0].Job.Schedule != "@every 1h30m0s" || len(r.Notes) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestTheLastValueOfASettingCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		timer, service string
		spread         time.Duration
		timeout        time.Duration
		notes          int
	}{
		{timer: "RandomizedDelaySec=5min\nRandomizedDelaySec=0"},
		{timer: "RandomizedDelaySec=0\nRandomizedDelaySec=5min", spread: 5 * time.Minute, notes: 1},
		{timer: "Persistent=yes\nPersistent=no"},
		{timer: "AccuracySec=1h\nAccuracySec=1s", notes: 1},
		{service: "TimeoutStartSec=1h\nTimeoutStartSec=2h", timeout: 2 * time.Hour},
		{service: "TimeoutStartSec=1h\nTimeoutSec=2h", timeout: 2 * time.Hour},
		{service: "TimeoutStartSec=1h\nTimeoutStartSec=infinity"},
		{service: "RuntimeMaxSec=10min"}, // of no effect on a oneshot
		{service: "TimeoutStartSec=1h\nRuntimeMaxSec=10min", timeout: time.Hour},
		{service: "Type=exec\nTimeoutStartSec=1h\nRuntimeMaxSec=10min\nRuntimeMaxSec=20min", timeout: 20 * time.Minute},
		{service: "Restart=always\nRestart=no"},
	} {
		r := systemdOf("OnCalendar=daily\n"+c.timer, "Type=oneshot\nExecStart=/bin/true\n"+c.service)
		if len(r.Jobs) != 1 || r.Jobs[0].Job.Spread != c.spread || r.Jobs[0].Job.Timeout != c.timeout || r.Jobs[0].Job.CatchUp.Policy != job.CatchUpNone || len(r.Notes) != c.notes {
			t.Errorf("%+v: %+v", c, r)
		}
	}
	for timer, want := range map[string]string{
		"OnUnitActiveSec=1h\nOnBootSec=1min\nOnCalendar=\nOnCalendar=daily": "0 0 * * *",
		"OnCalendar=daily\nOnBootSec=\nOnUnitActiveSec=1h":                  "@every 1h0m0s",
	} {
		r := systemdOf(timer, "ExecStart=/bin/true")
		if len(r.Jobs) != 1 || r.Jobs[0].Job.Schedule != want {
			t.Errorf("%s: %+v", timer, r)
		}
	}
}

func TestAFileThatSystemctlPrintsTwiceIsReadOnce(t *testing.T) {
	t.Parallel()
	const service = "# /etc/systemd/system/backup@.service\n[Service]\nType=oneshot\nExecStart=/bin/backup %i\n"
	r := Systemd([]unitfile.File{{Path: "-", Text: "# /etc/systemd/system/backup@a.timer\n[Timer]\nOnCalendar=daily\n\n" + service +
		"\n# /etc/systemd/system/backup@b.timer\n[Timer]\nOnCalendar=hourly\n\n" + service}}, "UTC")
	if len(r.Jobs) != 2 || !slices.Equal(r.Jobs[0].Exec.Args, []string{"/bin/backup", "a"}) || !slices.Equal(r.Jobs[1].Exec.Args, []string{"/bin/backup", "b"}) {
		t.Errorf("%+v", r)
	}
}

func TestNoSettingOfAUnitIsDroppedInSilence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]string{"CPUQuota", "Nice", "ExecStopPost", "StandardOutput", "LoadCredential", "OnClockChange", "OnBootSec", "WakeSystem", "AccuracySec"}).Draw(t, "key")
		timer, service := "OnCalendar=daily\n", "ExecStart=/bin/true\n"
		if strings.HasPrefix(key, "On") || key == "WakeSystem" || key == "AccuracySec" {
			timer += key + "=true\n"
		} else {
			service += key + "=x\n"
		}
		r := systemdOf(timer, service)
		if len(r.Jobs) != 1 || !slices.ContainsFunc(r.Notes, func(n Note) bool { return strings.Contains(n.Text, key) && n.Job == "x" }) {
			t.Fatalf("%s: %+v", key, r)
		}
		if _, err := jobfile.FormatImported(nil, r.Jobs); err != nil {
			t.Fatal(err)
		}
	})
}

// systemd does the same: see the answers below.
func TestCalendarStepBeyondTheFieldIsRefusedUnlessItIsOfARange(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"24", "1000", "9223372036854775807"} {
		r := systemdOf("OnCalendar=*-*-* 1/"+step+":00:00", "ExecStart=/bin/true")
		if len(r.Jobs) != 0 || len(r.Notes) != 1 {
			t.Errorf("a step of %s hours: %+v, want a note and no job", step, r)
		}
		r = systemdOf("OnCalendar=*-*-* 1..5/"+step+":00:00", "ExecStart=/bin/true")
		if len(r.Jobs) != 1 || r.Jobs[0].Job.Schedule != "0 1 * * *" {
			t.Errorf("a step of %s hours: %+v, want one job at 01:00", step, r)
		}
	}
}

func TestOnlyTheShortestRepetitionOfATimerIsCarriedOver(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"OnUnitActiveSec=15min\nOnUnitActiveSec=10min\nOnUnitActiveSec=20min": "@every 10m0s",
		"OnUnitActiveSec=10min\nOnUnitActiveSec=10min":                        "@every 10m0s",
		"OnUnitActiveSec=15min\nOnUnitInactiveSec=5min":                       "@every 5m0s",
		"OnUnitActiveSec=soon\nOnUnitActiveSec=1h\nOnCalendar=daily":          "0 0 * * * UTC, @every 1h0m0s",
	} {
		r := systemdOf(setting, "ExecStart=/bin/true")
		dropped := 0
		for _, n := range r.Notes {
			if strings.HasPrefix(n.Text, "not carried over: OnUnit") {
				dropped++
			}
		}
		if got := strings.Join(schedulesOf(r), ", "); got != want || len(r.Jobs)+dropped != strings.Count(setting, "\n")+1 {
			t.Errorf("%q: %q, want %q: %+v", setting, got, want, r.Notes)
		}
	}
}

// The expected answers are those of "systemd-analyze calendar" and "systemd-analyze timespan".
func TestATimersTimesAreThoseThatSystemdReads(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{ // none: systemd refuses it
		"OnCalendar=Mon-Fri 09:00":           "0 9 * * 1-5 UTC",
		"OnCalendar=Mon,Wed-Fri *-*-* 09:00": "0 9 * * 1,3,4,5 UTC",
		"OnCalendar=*:*/5":                   "",
		"OnCalendar=*-*-* */2:00:00":         "",
		"OnCalendar=*:*:*/10":                "",
		"OnCalendar=*-*-*/2":                 "",
		"OnCalendar=*-*-* *,5:00":            "",
		"OnCalendar=*:0/5":                   "*/5 * * * * UTC",
		"OnCalendar=1/24:00":                 "",
		"OnCalendar=*:00/75":                 "",
		"OnCalendar=*:00/60":                 "",
		"OnCalendar=00/23:00":                "0 0,23 * * * UTC",
		"OnCalendar=*-1/13-1":                "",
		"OnCalendar=*-*-1/31":                "",
		"OnCalendar=1,1/23:00":               "",
		"OnCalendar=*:5/54":                  "5,59 * * * * UTC",
		"OnCalendar=100-01-01":               "",
		"OnCalendar=*-*~01":                  "0 0 L * * UTC",
		"OnCalendar=*-*~01,15":               "0 0 L,L-14 * * UTC",
		"OnCalendar=*-02~03 04:00":           "0 4 L-2 2 * UTC",
		"OnCalendar=*-*~07/3":                "0 0 L-6,L-3,L * * UTC",
		"OnCalendar=Mon *-*~07/1":            "0 0 L-6,L-5,L-4,L-3,L-2,L-1,L * * UTC",
		"OnCalendar=*-*~40":                  "",
		"OnCalendar=*-*~00":                  "",
		"OnCalendar=*-*~03..01":              "",
		"OnCalendar=anually":                 "0 0 1 1 * UTC",
		"OnUnitActiveSec=1month":             "@every 730h30m0s",
		"OnUnitActiveSec=1y":                 "@every 8766h0m0s",
		"OnUnitActiveSec=90000000μs":         "@every 1m30s",
	} {
		r := systemdOf(setting, "ExecStart=/bin/true")
		if got := strings.Join(schedulesOf(r), ", "); got != want || want == "" && len(r.Notes) != 1 {
			t.Errorf("%s: %q, want %q: %+v", setting, got, want, r.Notes)
		}
	}
}

func TestYearsOfTwoDigitsAreThoseThatSystemdReads(t *testing.T) {
	t.Parallel()
	for years, want := range map[string][2]int{"26": {2026, 2027}, "26..28": {2026, 2029}, "26,27": {2026, 2028}, "0": {2000, 2001}, "69": {2069, 2070}, "70": {1970, 1971}, "99": {1999, 2000}, "2026": {2026, 2027}} {
		r := systemdOf("OnCalendar="+years+"-01-01", "ExecStart=/bin/true")
		if len(r.Jobs) != 1 || r.Jobs[0].Job.From.Year() != want[0] || r.Jobs[0].Job.Until.Year() != want[1] {
			t.Errorf("%s: %+v, want the years %v", years, r, want)
		}
	}
}

func TestADelayThatIsNoTimeSpanIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"7200  # two hours": "is not a time span", "2d": "spread is at most 24h0m0s"} {
		r := systemdOf("OnCalendar=daily\nRandomizedDelaySec="+value, "ExecStart=/bin/true")
		if len(r.Jobs) != 1 || r.Jobs[0].Job.Spread != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, want) {
			t.Errorf("%s: %+v, want the note %q", value, r, want)
		}
	}
}

func TestATimersSpecifiersAreThoseOfItsInstance(t *testing.T) {
	t.Parallel()
	r := Systemd([]unitfile.File{
		{Path: "backup@daily.timer", Text: "[Timer]\nOnCalendar=%i\nUnit=%p-%j@all.service\n"},
		{Path: "backup-backup@.service", Text: "[Service]\nExecStart=/bin/backup %i\n"},
	}, "UTC")
	if len(r.Jobs) != 1 || r.Jobs[0].Job.Schedule != "0 0 * * *" || !slices.Equal(r.Jobs[0].Exec.Args, []string{"/bin/backup", "all"}) {
		t.Errorf("%+v", r)
	}
}

// schedulesOf returns the schedule and the time zone of each job.
func schedulesOf(r Result) (all []string) {
	for _, j := range r.Jobs {
		all = append(all, strings.TrimSpace(j.Job.Schedule+" "+j.Job.Timezone))
	}
	return all
}
