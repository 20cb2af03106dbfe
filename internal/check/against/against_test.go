package against_test

import (
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/check/against"
	"github.com/cronce-io/cronce/job"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}

func read(t *testing.T, zone, text string) against.Log {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	log, err := against.Read(strings.NewReader(text), at("2026-11-22T12:00:00Z"), loc, unnamed)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestALineThatIsCutOffOrInAnotherEncodingIsNotPassedOver(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	now := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	l, err := against.Read(strings.NewReader("\ufeffNov 28 07:00:01 web CRON[7]: (root) CMD (a)\r\nNov 28 07:00:02 web CRON[8]: (root) CMD (a very long comm\nNov 28 07:00:03 web CRON[8]: (root) MAIL (mailed)\n"), now, time.UTC, none)
	if err != nil || len(l.Runs) != 1 || l.Runs[0].Command != "a" || l.Unknown != 1 || l.FirstUnknown != 2 || l.Other != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := against.Read(strings.NewReader("\xff\xfeN\x00"), now, time.UTC, none); err == nil || !strings.Contains(err.Error(), "save it as UTF-8") {
		t.Errorf("UTF-16: %v", err)
	}
}

func TestReadUnderstandsPlainLinesSyslogAndTheJournal(t *testing.T) {
	t.Parallel()
	log := read(t, "Europe/Berlin", `# started by hand
2026-11-22T07:00:01Z report
2026-11-22 08:00:02,250+01:00 report
2026-11-22 08:00:02,250 report
Nov 22 08:00:01 web1 CRON[4711]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)
Nov 22 08:00:01 web1 CRON[4710]: pam_unix(cron:session): session opened for user root(uid=0) by (uid=0)
Dec 31 23:59:01 web1 CROND[1]: (ada) CMD (echo (1))
Dec 31 23:59:02 web1 CROND[1]: (ada) CMDEND (echo (1))
2026-11-22T08:00:01.123456+01:00 web1 CRON[9]: (ada) CMD (report)
-- Boot 0123456789abcdef --
2026-11-22T08:00:00+0100 web1 systemd[1]: Starting report.service - Make the report...
2026-11-22T08:00:03+0100 web1 systemd[1]: Finished report.service - Make the report.
2026-11-22T09:00:00+0100 web1 systemd[1]: Starting report.service - Make the report...
2026-11-22T09:00:03+0100 web1 systemd[1]: Started report.service - Make the report.
2026-11-22T09:30:00+0100 web1 systemd[1]: Started tick.service.
2026-11-22T09:30:05+0100 web1 systemd[1]: Reached target timers.target - Timer Units.
a line of something else
2026-13-22T07:00:01Z report
2026-11-22T07:00:01Z report was started
`)
	want := []against.Run{
		{Time: at("2026-11-22T07:00:01Z"), Line: 2, Job: "report"},
		{Time: at("2026-11-22T07:00:02.25Z"), Line: 3, Job: "report"},
		{Time: at("2026-11-22T07:00:02.25Z"), Line: 4, Job: "report"},
		{Time: at("2026-11-22T07:00:01Z"), Line: 5, User: "root", Command: "cd / && run-parts --report /etc/cron.hourly"},
		{Time: at("2025-12-31T22:59:01Z"), Line: 7, User: "ada", Command: "echo (1)"},
		{Time: at("2026-11-22T07:00:01.123456Z"), Line: 9, User: "ada", Command: "report"},
		{Time: at("2026-11-22T07:00:00Z"), Line: 11, Unit: "report"},
		{Time: at("2026-11-22T08:00:00Z"), Line: 13, Unit: "report"},
		{Time: at("2026-11-22T08:30:00Z"), Line: 15, Unit: "tick"},
	}
	if !reflect.DeepEqual(log.Runs, want) {
		t.Errorf("got  %+v\nwant %+v", log.Runs, want)
	}
	if log.Other != 5 || log.Unknown != 3 || log.FirstUnknown != 17 {
		t.Errorf("%d about something else, %d not understood, the first at %d", log.Other, log.Unknown, log.FirstUnknown)
	}
	if !log.First.Equal(at("2025-12-31T22:59:01Z")) || !log.Last.Equal(at("2026-11-22T08:30:05Z")) {
		t.Errorf("from %v to %v", log.First, log.Last)
	}
}

func TestAnEndlessLineIsNotUnderstoodAndTheNextIs(t *testing.T) {
	t.Parallel()
	log := read(t, "UTC", "2026-11-22T07:00:01Z "+strings.Repeat("x", 3<<20)+"\n2026-11-22T07:00:01Z report")
	if len(log.Runs) != 1 || log.Runs[0].Line != 2 || log.Unknown != 1 {
		t.Errorf("%+v", log)
	}
}

func TestALineThatNeverEndsIsAnError(t *testing.T) {
	t.Parallel()
	zeros := io.MultiReader(strings.NewReader("2026-11-22T07:00:01Z report\n"), zero{})
	_, err := against.Read(zeros, at("2026-11-22T12:00:00Z"), time.UTC, unnamed)
	if err == nil || err.Error() != "line 2: longer than 64 MiB: want a log with a line for each run" {
		t.Error(err)
	}
}

// zero is /dev/zero.
type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

var day = against.Window{From: at("2026-11-22T00:00:00Z"), To: at("2026-11-23T00:00:00Z")}

func slot(clock string, state job.State) against.Slot {
	due := at("2026-11-22T" + clock + "Z")
	return against.Slot{Job: "report", ID: "report:" + due.Format(time.RFC3339), Due: due, State: state, Ran: state == job.Succeeded, Shadow: true}
}

func run(clock string, line int) against.Run {
	return against.Run{Time: at("2026-11-22T" + clock + "Z"), Line: line}
}

func TestCompareReportsWhatOnlyOneSideHas(t *testing.T) {
	t.Parallel()
	ran := slot("11:00:00", job.Succeeded)
	ran.Shadow = false
	j := against.Job{Names: []string{"report"}, Window: day, Ours: day,
		Slots: []against.Slot{
			slot("07:00:00", job.Succeeded), slot("08:00:00", job.Succeeded), slot("09:00:00", job.Skipped), slot("10:00:00", job.Missed), ran,
		},
		Runs: []against.Run{run("11:00:03", 9), run("07:00:01", 1), run("07:00:00.5", 2), run("09:00:01", 3), run("12:30:00", 4)},
	}
	var found []string
	sum := against.Compare(j, time.Minute, func(d against.Difference) {
		found = append(found, strings.TrimSpace(strings.Join([]string{string(d.Kind), d.Time.Format("15:04:05"), string(d.State), d.Text}, " ")))
	})
	want := []string{
		"only_theirs 07:00:01  the slot has another line already", "only_ours 08:00:00 succeeded",
		"only_theirs 09:00:01 skipped the slot did not run", "only_theirs 12:30:00",
	}
	if !slices.Equal(found, want) {
		t.Errorf("got  %q\nwant %q", found, want)
	}
	if sum.Both != 2 || sum.OnlyOurs != 1 || sum.OnlyTheirs != 3 || sum.Twice != 1 || *sum.Offset != (against.Offset{Min: 500, P50: 3000, Max: 3000}) {
		t.Errorf("%+v %+v", sum, sum.Offset)
	}
}

func TestCompareJudgesNothingBeyondItsWindow(t *testing.T) {
	t.Parallel()
	j := against.Job{Names: []string{"report"},
		Window: against.Window{From: at("2026-11-22T07:00:30Z"), To: at("2026-11-22T09:00:00Z")},
		Ours:   against.Window{From: at("2026-11-22T07:00:30Z"), To: at("2026-11-22T08:30:00Z")},
		Slots:  []against.Slot{slot("07:00:00", job.Succeeded), slot("08:59:59", job.Succeeded), slot("09:00:00", job.Succeeded)},
		Runs:   []against.Run{run("06:00:00", 1), run("07:00:31", 2), run("10:00:00", 3)},
	}
	sum := against.Compare(j, time.Minute, func(d against.Difference) { t.Errorf("%+v", d) })
	if sum.Both != 1 || sum.NotJudged != 1 {
		t.Errorf("%+v: the run at 07:00:31 is that of 07:00:00", sum)
	}
}

func TestTwoJobsWithOneCommandAreOneList(t *testing.T) {
	t.Parallel()
	other := slot("07:00:00", job.Succeeded)
	other.Job = "report-2"
	j := against.Job{Names: []string{"report", "report-2"}, Window: day, Ours: day,
		Slots: []against.Slot{slot("07:00:00", job.Succeeded), other}, Runs: []against.Run{run("07:00:01", 1), run("07:00:01", 2)}}
	sum := against.Compare(j, time.Minute, func(d against.Difference) { t.Errorf("%+v", d) })
	if sum.Both != 2 || !slices.Equal(sum.Also, []string{"report-2"}) {
		t.Errorf("%+v", sum)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("2026-11-22T07:00:01Z report\nNov 22 08:00:01 web1 CRON[4711]: (root) CMD (x)\n2026-11-22T08:00:00+0100 h systemd[1]: Started a.service - b.\n")
	f.Fuzz(func(t *testing.T, text string) {
		log, err := against.Read(strings.NewReader(text), at("2026-11-22T12:00:00Z"), time.UTC, unnamed)
		lines := 0
		for range strings.Lines(text) {
			lines++
		}
		if err != nil || len(log.Runs)+log.Other+log.Unknown > lines {
			t.Fatalf("%d runs, %d others and %d not understood of %d lines: %v", len(log.Runs), log.Other, log.Unknown, lines, err)
		}
	})
}

// unnamed is the function named of a caller that has no job file.
func unnamed(string) string { return "" }
