package migrate

import (
	"encoding/json"
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
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

// formats are the importers, by name. Each reads one text.
var formats = map[string]func(text string) (Result, error){
	"celery":      func(text string) (Result, error) { return Celery(text, "UTC"), nil },
	"apscheduler": func(text string) (Result, error) { return APScheduler(text, "UTC"), nil },
	"sidekiq":     func(text string) (Result, error) { return Sidekiq([]byte(text), "UTC") },
	"github":      func(text string) (Result, error) { return GitHub([]byte(text), "a.yml") },
	"k8s":         func(text string) (Result, error) { return Kubernetes([]byte(text), "UTC") },
	"crontab":     func(text string) (Result, error) { return Crontab(text, "UTC", false), nil },
	"systemd": func(text string) (Result, error) {
		return Systemd([]unitfile.File{{Path: "x.timer", Text: text}}, "UTC"), nil
	},
}

// needCommand skips the test, by name, if a program is missing. With CRONCE_TEST_NO_SKIP=1 a
// missing program fails the test, unless CRONCE_TEST_WITHOUT names it.
func needCommand(t *testing.T, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CRONCE_TEST_NO_SKIP") == "1" && !slices.Contains(strings.Fields(os.Getenv("CRONCE_TEST_WITHOUT")), name):
		t.Fatal(err)
	default:
		t.Skipf("needs %s: %v", name, err)
	}
}

// matching computes the expected slots: each minute of UTC at which all fields match.
func matching(from, to time.Time, minutes, hours, days, weekdays map[int]bool) (runs []time.Time) {
	for at := from.Add(time.Minute); at.Before(to); at = at.Add(time.Minute) {
		if minutes[at.Minute()] && hours[at.Hour()] && days[at.Day()] && weekdays[int(at.Weekday())] {
			runs = append(runs, at)
		}
	}
	return runs
}

func TestPythonSchedulesHaveTheSlotsAtWhichAllTheirFieldsMatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		minute, hour := genField(0, 59).Draw(t, "minute"), genField(0, 23).Draw(t, "hour")
		day, weekday := genField(1, 31).Draw(t, "day"), genField(0, 6).Draw(t, "weekday")
		minutes, hours, days, weekdays := cronSet(minute, 0, 59), cronSet(hour, 0, 23), cronSet(day, 1, 31), cronSet(weekday, 0, 6)
		from := time.Date(2026, 11, rapid.IntRange(1, 25).Draw(t, "from"), 0, 0, 0, 0, time.UTC)
		to := from.AddDate(0, 0, 12)
		shifted := map[int]bool{} // Monday is 0
		for n := range weekdays {
			shifted[(n+1)%7] = true
		}
		for name, c := range map[string]struct {
			text string
			days map[int]bool
		}{
			"celery":      {fmt.Sprintf(`beat_schedule = {"work": {"task": "x", "schedule": crontab(minute=%q, hour=%q, day_of_month=%q, day_of_week=%q)}}`, minute, hour, day, weekday), weekdays},
			"apscheduler": {fmt.Sprintf(`s.add_job("m:f", "cron", minute=%q, hour=%q, day=%q, day_of_week=%q, id="work")`, minute, hour, day, weekday), shifted},
		} {
			r, err := formats[name](c.text)
			want := matching(from, to, minutes, hours, days, c.days)
			if err != nil || len(r.Jobs) != 1 {
				t.Fatalf("%s: %v, %+v", c.text, err, r)
			}
			if r.Jobs[0].Job.Schedule == job.OnDemand && len(want) == 0 {
				continue
			}
			if got := slotsOf(t, r.Jobs[0].Job, from, to); !slices.EqualFunc(got, want, time.Time.Equal) {
				t.Fatalf("%s: the job %+v %s", c.text, r.Jobs[0].Job, differ(got, want))
			}
		}
	})
}

func TestPythonIntervalsAndDatesAreReadAsTheyStand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`app.conf.beat_schedule = {"a": {"task": "t", "schedule": 90}}`:                              "@every 1m30s",
		`CELERY_BEAT_SCHEDULE = {"a": {"task": "t", "schedule": timedelta(0, 30, minutes=2)}}`:       "@every 2m30s",
		`app.conf.update(beat_schedule={"a": {"task": "t", "schedule": schedule(run_every=2.0)}})`:   "@every 2s",
		`config = {"beat_schedule": {"a": {"task": "t", "schedule": schedule(timedelta(days=1))}}}`:  "@every 24h0m0s",
		`beat_schedule["a"] = {"task": "t", "schedule": crontab(day_of_week=[1, 3], hour=range(3))}`: "* 0-2 * * 1,3",
	} {
		if r := Celery(text, "UTC"); len(r.Jobs) != 1 || r.Jobs[0].Job.Schedule != want {
			t.Errorf("%s: %+v, want %s", text, r, want)
		}
	}
	for text, want := range map[string]string{
		`s.add_job("m:f", "interval", hours=1, minutes=30)`:                        "@every 1h30m0s",
		`s.add_job("m:f", trigger="date", run_date="2027-01-01 07:00:00")`:         "@at 2027-01-01T06:00:00Z",
		`s.add_job("m:f", DateTrigger(datetime(2027, 1, 1, tzinfo=utc)))`:          "@at 2027-01-01T00:00:00Z",
		`s.add_schedule("m:f", CronTrigger(month="jan-mar", hour="8,20"))`:         "0 8,20 * 1-3 *",
		`s.add_job("m:f", CronTrigger.from_crontab("*/5 * * * mon"))`:              "*/5 * * * 1",
		`JOBS = [{"func": "m:f", "trigger": "cron", "second": 30, "minute": "5"}]`: "30 5 * * * *",
	} {
		if r := APScheduler(`BackgroundScheduler(timezone=pytz.timezone("Europe/Berlin"))`+"\n"+text, "UTC"); len(r.Jobs) != 1 || r.Jobs[0].Job.Schedule != want {
			t.Errorf("%s: %+v, want %s", text, r, want)
		}
	}
}

// call.py of docs/migration.md reads the payload that the importer writes.
func TestTheCallOfAnImportedFunctionHasItsArguments(t *testing.T) {
	t.Parallel()
	needCommand(t, "python3")
	page := filetest.Read(t, "../../../docs/migration.md")
	program := regexp.MustCompile("(?s)```python\n(\"\"\"call\\.py.*?)```").FindSubmatch(page)
	if program == nil {
		t.Fatal("the page has no call.py")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"call.py": string(program[1]), "shop.py": "class Desk:\n    @staticmethod\n    def greet(*names, loud=False):\n        print(names, loud)\n"} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := APScheduler(`s.add_job("shop:Desk.greet", "cron", hour=7, args=("ada", "grace"), kwargs={"loud": True})`, "UTC")
	if len(r.Jobs) != 1 {
		t.Fatalf("%+v", r)
	}
	args := r.Jobs[0].Exec.Args
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(string(r.Jobs[0].Job.Payload))
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "('ada', 'grace') True\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// FuzzImport checks that the job file that is made of any imported file is valid, and reads as the same
// jobs.
func FuzzImport(f *testing.F) {
	files, err := os.ReadDir("../../../cmd/cronce/testdata/import")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile("../../../cmd/cronce/testdata/import/" + file.Name()); err == nil {
			f.Add(string(text))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, read := range formats {
			r, err := read(text)
			if err != nil || len(r.Jobs) == 0 {
				continue
			}
			file, err := jobfile.FormatImported(nil, r.Jobs)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			again, err := jobfile.Parse("jobs.yaml", file)
			if err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, file)
			}
			for i, e := range again.Jobs {
				if want, _ := json.Marshal(r.Jobs[i].Job); e.Job.Name != r.Jobs[i].Job.Name || e.Job.Schedule != r.Jobs[i].Job.Schedule || !reflect.DeepEqual(e.Action.Exec.Args, r.Jobs[i].Exec.Args) {
					t.Fatalf("%s: %s is read as %+v", name, want, e)
				}
			}
		}
	})
}
