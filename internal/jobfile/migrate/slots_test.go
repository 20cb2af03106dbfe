package migrate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/job"
)

// changes are days around which clocks change, and one on which they do not.
var changes = map[string][]time.Time{
	"Europe/Berlin":       {time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)},
	"America/New_York":    {time.Date(2026, 3, 7, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 31, 0, 0, 0, 0, time.UTC)},
	"Australia/Lord_Howe": {time.Date(2026, 10, 3, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 4, 0, 0, 0, 0, time.UTC)},
}

func genField(low, high int) *rapid.Generator[string] {
	number := rapid.IntRange(low, high)
	item := rapid.OneOf(
		rapid.Just("*"),
		rapid.Map(number, func(n int) string { return fmt.Sprint(n) }),
		rapid.Map(rapid.IntRange(2, 7), func(n int) string { return fmt.Sprintf("*/%d", n) }),
		rapid.Custom(func(t *rapid.T) string {
			a, b := number.Draw(t, "a"), number.Draw(t, "b")
			return fmt.Sprintf("%d-%d", min(a, b), max(a, b))
		}),
	)
	list := rapid.Map(rapid.SliceOfN(number, 2, 4), func(n []int) string { return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(n)), ","), "[]") })
	return rapid.OneOf(item, item, list)
}

// genSchedule makes five fields that match something on most days.
func genSchedule(t *rapid.T) string {
	return strings.Join([]string{
		genField(0, 59).Draw(t, "minute"), genField(0, 4).Draw(t, "hour"), genField(1, 31).Draw(t, "dom"), "*", genField(0, 6).Draw(t, "dow"),
	}, " ")
}

func slotsOf(t interface {
	Helper()
	Fatal(...any)
}, j job.Job, from, to time.Time) (slots []time.Time) {
	t.Helper()
	s, err := job.ParseSchedule(j.Name, j.Plan())
	if err != nil {
		t.Fatal(err)
	}
	for at := s.Next(from); !at.IsZero() && at.Before(to); at = s.Next(at) {
		slots = append(slots, at)
	}
	return slots
}

// cronSet returns the numbers that a field matches.
func cronSet(field string, low, high int) map[int]bool {
	all := map[int]bool{}
	for _, item := range strings.Split(field, ",") {
		a, b, step := low, high, 1
		base, by, stepped := strings.Cut(item, "/")
		if stepped {
			fmt.Sscan(by, &step)
		}
		if base != "*" {
			if n, _ := fmt.Sscanf(base, "%d-%d", &a, &b); n == 1 {
				b = a
			}
		}
		for n := a; n <= b; n += step {
			all[n] = true
		}
	}
	return all
}

// cronRuns returns when Vixie cron starts a line's command. It follows cron.c minute by minute:
// find_jobs, and what cron does when clocks change by up to three hours.
func cronRuns(line string, zone *time.Location, from, to time.Time) (runs []time.Time) {
	f := strings.Fields(line)
	star := func(i int) bool { return strings.HasPrefix(f[i], "*") }
	minutes, hours, doms, dows := cronSet(f[0], 0, 59), cronSet(f[1], 0, 23), cronSet(f[2], 1, 31), cronSet(f[4], 0, 6)
	matches := func(wall time.Time) bool {
		dom, dow := doms[wall.Day()], dows[int(wall.Weekday())]
		days := dom || dow
		if star(2) || star(4) {
			days = dom && dow
		}
		return minutes[wall.Minute()] && hours[wall.Hour()] && days
	}
	wallOf := func(at time.Time) time.Time {
		l := at.In(zone)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
	}
	newest := wallOf(from)
	for at := from.Truncate(time.Minute).Add(time.Minute); at.Before(to); at = at.Add(time.Minute) {
		wall := wallOf(at)
		run := matches(wall)
		if !star(0) && !star(1) {
			run = false // a wall time runs once, and those in a gap run right after the gap
			for w := newest.Add(time.Minute); !w.After(wall); w = w.Add(time.Minute) {
				run = run || matches(w)
			}
		}
		if wall.After(newest) {
			newest = wall
		}
		if run {
			runs = append(runs, at)
		}
	}
	return runs
}

// differ describes the first difference.
func differ(got, want []time.Time) string {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !got[i].Equal(want[i]) {
			return fmt.Sprintf("has %v, and ran at %v", got[min(i, len(got)):min(i+2, len(got))], want[min(i, len(want)):min(i+2, len(want))])
		}
	}
	return "is the same"
}

func TestACrontabsJobsHaveTheSlotsThatCronRunsThemAt(t *testing.T) {
	t.Parallel()
	for name, days := range changes {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			line, from := genSchedule(t), rapid.SampledFrom(days).Draw(t, "from")
			to := from.AddDate(0, 0, 10)
			r := Crontab(line+" work", name, false)
			if len(r.Jobs) != 1 || len(r.Notes) > 0 {
				if len(r.Notes) == 1 && strings.Contains(r.Notes[0].Text, "never fires") && len(cronRuns(line, zone, from, to)) == 0 {
					return
				}
				t.Fatalf("%s: %+v", line, r)
			}
			if got, want := slotsOf(t, r.Jobs[0].Job, from, to), cronRuns(line, zone, from, to); !slices.EqualFunc(got, want, time.Time.Equal) {
				t.Fatalf("%s in %s: the job %+v %s", line, name, r.Jobs[0].Job, differ(got, want))
			}
		})
	}
}

// Where clocks change by half an hour, the search of Kubernetes' parser misses slots or invents
// them. The job has the right ones, so this test leaves such a zone out.
func TestACronJobsJobHasTheSlotsThatKubernetesRunsItAt(t *testing.T) {
	t.Parallel()
	for name, days := range changes {
		if name == "Australia/Lord_Howe" {
			continue
		}
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			spec, from := genSchedule(t), rapid.SampledFrom(days).Draw(t, "from")
			to := from.AddDate(0, 0, 10)
			r, err := Kubernetes(fmt.Appendf(nil, cronJob, spec, name), "UTC")
			if err != nil || len(r.Jobs) != 1 {
				t.Fatalf("%s: %v, %+v", spec, err, r)
			}
			its, err := cron.ParseStandard(spec)
			if err != nil {
				t.Fatal(err)
			}
			var want []time.Time
			for at := its.Next(from.In(zone)); !at.IsZero() && at.Before(to); at = its.Next(at) {
				want = append(want, at)
			}
			if got := slotsOf(t, r.Jobs[0].Job, from, to); !slices.EqualFunc(got, want, time.Time.Equal) {
				t.Fatalf("%s in %s %s", spec, name, differ(got, want))
			}
		})
	}
}

const cronJob = `apiVersion: batch/v1
kind: CronJob
metadata: {name: work}
spec:
  schedule: %q
  timeZone: %s
  jobTemplate: {spec: {template: {spec: {containers: [{name: c, command: [work]}]}}}}
`

func TestAScheduleThatNeverFiresIsImportedAsAJobOnDemand(t *testing.T) {
	t.Parallel()
	fromCron := Crontab("0 0 31 2 * work", "Europe/Berlin", false)
	fromKubernetes, err := Kubernetes(fmt.Appendf(nil, cronJob, "0 0 31 2 *", "Europe/Berlin"), "UTC")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Result{fromCron, fromKubernetes} {
		if len(r.Jobs) != 1 || r.Jobs[0].Job.Schedule != job.OnDemand || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, "0 0 31 2 * never fires") {
			t.Errorf("%+v", r)
			continue
		}
		file, err := jobfile.FormatImported(nil, r.Jobs)
		if err != nil {
			t.Fatal(err)
		}
		if read, err := jobfile.Parse("jobs.yaml", file); err != nil || read.Jobs[0].Job.Schedule != job.OnDemand {
			t.Errorf("%v in\n%s", err, file)
		}
	}
}

// Each line of any crontab becomes a job or has a note, and the job file is valid.
func TestNothingOfACrontabIsDroppedInSilence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.OneOf(
			rapid.Custom(func(t *rapid.T) string {
				return genSchedule(t) + " " + rapid.StringMatching(`[ -~äÿ\x07]{0,40}`).Draw(t, "command")
			}),
			rapid.StringMatching(`[@*0-9, /a-z~%=]{1,30}`),
		), 1, 8).Draw(t, "lines")
		text := strings.Join(lines, "\n")
		r := Crontab(text, "UTC", rapid.Bool().Draw(t, "system"))
		seen := map[int]bool{}
		for _, j := range r.Jobs {
			seen[j.Line] = true
		}
		for _, n := range r.Notes {
			seen[n.Line] = true
		}
		for i, line := range strings.Split(text, "\n") {
			if trimmed := strings.TrimSpace(line); trimmed != "" && trimmed[0] != '#' && !cronSetting.MatchString(line) && !seen[i+1] {
				t.Fatalf("nothing was said of line %d: %q", i+1, line)
			}
		}
		if len(r.Jobs) == 0 {
			return
		}
		file, err := jobfile.FormatImported(nil, r.Jobs)
		if err != nil {
			t.Fatal(err)
		}
		read, err := jobfile.Parse("jobs.yaml", file)
		if err != nil {
			t.Fatalf("%v in\n%s", err, file)
		}
		for i, e := range read.Jobs {
			want, _ := r.Jobs[i].Job.Hash()
			if got, _ := e.Job.Hash(); got != want || !reflect.DeepEqual(*e.Action.Exec, r.Jobs[i].Exec) {
				t.Fatalf("%+v is read as %+v from\n%s", r.Jobs[i], e, file)
			}
		}
	})
}
