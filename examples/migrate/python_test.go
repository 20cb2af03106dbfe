package migrate

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// debianPython is the Python of the distribution, which has its packages.
const debianPython = "/usr/bin/python3"

// needPackage skips the test, by name, if a package of the distribution is missing. With
// CRONCE_TEST_NO_SKIP=1 a missing package fails the test, unless CRONCE_TEST_WITHOUT names it.
func needPackage(t *testing.T, name string) {
	t.Helper()
	out, err := exec.Command(debianPython, "-c", "import "+strings.TrimPrefix(name, "python3-")).CombinedOutput()
	switch {
	case err == nil:
	case os.Getenv("CRONCE_TEST_NO_SKIP") == "1" && !slices.Contains(strings.Fields(os.Getenv("CRONCE_TEST_WITHOUT")), name):
		t.Fatalf("%s: %v: %s", name, err, out)
	default:
		t.Skipf("needs the package %s: %v", name, err)
	}
}

// imported is what a script makes of a program.
type imported struct {
	jobs   map[string]spec.Entry
	text   string
	notes  []string
	status int
}

// run runs a script on programs, by file name, in a folder of its own. target is its argument.
func run(t *testing.T, script, target string, programs map[string]string) (r imported) {
	t.Helper()
	script, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(debianPython, append([]string{script}, strings.Fields(target)...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "TZ=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	r.text, r.jobs = string(out), map[string]spec.Entry{}
	for line := range strings.Lines(stderr.String()) {
		r.notes = append(r.notes, strings.TrimSpace(line))
	}
	if len(out) == 0 {
		return r
	}
	file, err := jobfile.Parse("jobs.yaml", out)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderr.String())
	}
	for _, e := range file.Jobs {
		r.jobs[e.Job.Name] = e
	}
	return r
}

// check compares schedules and notes. A note has the text that is wanted after its job's name.
func (r imported) check(t *testing.T, schedules, notes map[string]string) {
	t.Helper()
	for name, want := range schedules {
		if got := r.jobs[name].Job.Schedule; got != want {
			t.Errorf("%s: schedule %q, want %q", name, got, want)
		}
	}
	if len(r.jobs) != len(schedules) {
		t.Errorf("%d jobs, want %d:\n%s", len(r.jobs), len(schedules), r.text)
	}
	for name, want := range notes {
		if !slices.ContainsFunc(r.notes, func(n string) bool { return strings.HasPrefix(n, name+": ") && strings.Contains(n, want) }) {
			t.Errorf("no note about %s with %q in\n%s", name, want, strings.Join(r.notes, "\n"))
		}
	}
	if r.status != 3 {
		t.Errorf("exit status %d, want 3", r.status)
	}
}

const shop = `
import os, sqlite3
from datetime import datetime, timedelta
from celery import Celery
from celery.beat import Scheduler
from celery.schedules import crontab, schedule, solar

app = Celery("shop", broker="memory://")
app.conf.timezone = "Europe/Berlin"
app.conf.beat_cron_starting_deadline = 600
HOURLY = 3600

def more():
    return {"fn": {"task": "a.fn", "schedule": crontab(minute="*/15")}}

app.conf.beat_schedule = {
    "lit": {"task": "a.lit", "schedule": crontab(minute=0)},
    "report": {"task": "a.report", "schedule": crontab(minute=0, hour=7, day_of_week="mon-fri"), "kwargs": {"to": ["ada"]}, "options": {"expires": 600, "queue": "reports", "priority": 3}},
    "odd mondays": {"task": "a.odd", "schedule": crontab(0, 5, day_of_month="*/2", day_of_week=1)},
    "weekend": {"task": "a.weekend", "schedule": crontab(minute="*/20", hour="22-2,8", day_of_week="fri-mon")},
    "computed": {"task": "a.computed", "schedule": HOURLY},
    "weekly": {"task": "a.weekly", "schedule": timedelta(weeks=1)},
    "half": {"task": "a.half", "schedule": schedule(timedelta(seconds=0.5))},
    "dawn": {"task": "a.dawn", "schedule": solar("sunrise", 52.5, 13.4)},
    "clock": {"task": "a.clock", "schedule": crontab(hour=1, nowfun=datetime.now)},
    "argued": {"task": "a.argued", "schedule": 60, "args": (datetime.now(),)},
    "keyed": {"task": "a.keyed", "schedule": 60, "kwargs": {"by": {1: 2}}},
    "taskless": {"schedule": 60},
    **more(),
}

@app.task
def old(n): pass

@app.on_after_configure.connect
def periodic(sender, **kwargs):
    for n in range(1, 3):
        sender.add_periodic_task(10.0 * n, old.s(n), name=f"add-{n}")

class Database(Scheduler):
    """Reads its entries from a database."""
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        db = sqlite3.connect(":memory:")
        db.execute("create table entries (name text, minute text)")
        db.execute("insert into entries values ('stored', '*/5')")
        self.rows = {name: self.Entry(name, "a.stored", schedule=crontab(minute=minute), app=self.app) for name, minute in db.execute("select * from entries")}
    @property
    def schedule(self):
        return self.rows

app.conf.beat_scheduler = Database
`

func TestCeleryBeatsScheduleIsWhatCeleryItselfMakesOfTheProgram(t *testing.T) {
	t.Parallel()
	needPackage(t, "python3-celery")
	r := run(t, "celery_beat.py", "shop", map[string]string{"shop.py": shop})
	r.check(t, map[string]string{
		"lit": "0 * * * *", "fn": "*/15 * * * *", "report": "0 7 * * 1-5", "odd-mondays": "0 5 */2 * *", "weekend": "*/20 0,1,2,8,22,23 * * 0,1,5,6",
		"computed": "@every 3600s", "add-1": "@every 10s", "add-2": "@every 20s", "stored": "*/5 * * * *",
	}, map[string]string{
		"weekly": "an interval of 7 days", "half": "want whole seconds", "dawn": "a solar schedule", "clock": "is a clock of its own",
		"argued": "are not JSON", "keyed": "only text as keys", "taskless": "it names no task", "odd-mondays": "its name was odd mondays",
		"report": "not carried over: options priority=3", "computed": "counts from 1970",
	})
	report := r.jobs["report"]
	if j := report.Job; string(j.Payload) != `{"kwargs":{"to":["ada"]},"queue":"reports"}` || j.Timezone != "Europe/Berlin" || j.Deadline != 10*time.Minute ||
		j.CatchUp != (job.CatchUp{Policy: job.CatchUpLatest, Within: 10 * time.Minute}) || j.Overlap != job.OverlapAllow || j.Retry.Attempts != 1 {
		t.Errorf("%+v", j)
	}
	if got := strings.Join(report.Action.Exec.Args, " "); got != "python3 enqueue.py a.report" {
		t.Errorf("action %q", got)
	}
	if got := strings.Join(r.jobs["odd-mondays"].Job.Exclude, " "); got != "* * * * 0,2,3,4,5,6" {
		t.Errorf("exclude %q", got)
	}
	if got := strings.Join(r.jobs["add-1"].Action.Exec.Args, " "); got != "python3 enqueue.py shop.old" {
		t.Errorf("a task has its full name: %q", got)
	}
}

func TestACeleryAppWithoutAnythingToNoteEndsWithZero(t *testing.T) {
	t.Parallel()
	needPackage(t, "python3-celery")
	const app = "from celery import Celery\nfrom celery.schedules import crontab\nother = Celery('x')\nother.conf.beat_schedule = {'a': {'task': 't', 'schedule': crontab(minute=0, hour=7)}}\n"
	if r := run(t, "celery_beat.py", "proj:other", map[string]string{"proj.py": app}); r.status != 0 || len(r.notes) != 0 || r.jobs["a"].Job.Schedule != "0 7 * * *" || r.jobs["a"].Job.Timezone != "UTC" {
		t.Errorf("%+v", r)
	}
	if r := run(t, "celery_beat.py", "proj", map[string]string{"proj.py": "from celery import Celery\napp = Celery('x')\n"}); r.status != 2 || strings.Join(r.notes, "") != "no jobs found" {
		t.Errorf("an empty schedule: %+v", r)
	}
}

const timers = `
from datetime import datetime
from apscheduler.schedulers.blocking import BlockingScheduler
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger

def tidy(*args, **kwargs): pass

def make():
    scheduler = BlockingScheduler(timezone="Europe/Berlin", job_defaults={"misfire_grace_time": 3600})
    add = lambda id, trigger, **settings: scheduler.add_job("timers:tidy", trigger, id=id, **settings)
    scheduler.scheduled_job("cron", day_of_week="mon-fri", hour=7, max_instances=3)(tidy)
    add("interval", "interval", minutes=5, args=[16], kwargs={"all": True}, jitter=30)
    add("once", "date", run_date=datetime(2100, 1, 1, 7, 0))
    add("past", "date", run_date=datetime(2001, 1, 1, 7, 0))
    add("backup", CronTrigger(hour=3, timezone="UTC"), misfire_grace_time=None, coalesce=False)
    add("odd", "cron", day="*/2", day_of_week=0, hour=5, start_date="2026-12-01", end_date="2027-03-01 00:00:00")
    add("year", "cron", year=2027, month=6)
    add("seconds", "cron", second="*/15")
    add("second", "cron", day="2nd fri", hour=5)
    add("stepped", "cron", hour="5/6")
    add("six", "interval", hours=6, start_date="2026-11-01 05:10:00", timezone="UTC")
    add("sunday", "interval", weeks=1, start_date="2026-11-01 05:00:00", timezone="UTC")
    add("paused", "cron", hour=9, next_run_time=None)
    add("last", "cron", day="last sun")
    add("end", "cron", day="last")
    add("mixed", "cron", day="1,last sun")
    add("week", "cron", week=20)
    add("half", "interval", seconds=0.5)
    add("fortnight", "interval", weeks=2)
    add("three-days", "interval", days=3, start_date="2026-11-01 00:00:00")
    add("two", OrTrigger([CronTrigger(hour=1), CronTrigger(hour=2)]))
    scheduler.add_job(lambda: None, "cron", hour=1, id="lambda")
    scheduler.start()
`

func TestJobsOfAPSchedulerAreThoseThatItHolds(t *testing.T) {
	t.Parallel()
	needPackage(t, "python3-apscheduler")
	r := run(t, "apscheduler_jobs.py", "timers:make", map[string]string{"timers.py": timers})
	r.check(t, map[string]string{
		"tidy": "0 7 * * 1-5", "interval": "@every 300s", "once": "@at 2100-01-01T06:00:00Z", "backup": "0 3 * * *", "odd": "0 5 */2 * *", "year": "0 0 1 6 *",
		"seconds": "*/15 * * * * *", "second": "0 5 * * 5#2", "last": "0 0 * * 0L", "end": "0 0 L * *", "stepped": "0 5-23/6 * * *", "paused": "0 9 * * *",
		"six": "@every 21600s", "sunday": "@every 1w", "three-days": "@every 3d",
	}, map[string]string{
		"past": "it runs once, at 2001-01-01T06:00:00Z, which has passed", "mixed": "write a job for each of its days", "week": "name months and days",
		"half": "want whole seconds", "fortnight": "write @every 14d with from", "two": "write a job for each of its times",
		"lambda": "its function has no name", "paused": "cronce job pause paused", "interval": "jitter=30", "backup": "misfire_grace_time=None",
	})
	if j := r.jobs["tidy"].Job; j.Timezone != "Europe/Berlin" || j.Concurrency != 3 || j.Overlap != job.OverlapSkip || j.Deadline != time.Hour || j.DSTOverlap != job.RepeatBoth ||
		j.CatchUp != (job.CatchUp{Policy: job.CatchUpLatest, Within: time.Hour}) || j.Retry.Attempts != 1 {
		t.Errorf("%+v", j)
	}
	if j := r.jobs["interval"].Job; string(j.Payload) != `{"args":[16],"kwargs":{"all":true}}` || j.Spread != 30*time.Second {
		t.Errorf("%+v", j)
	}
	if j := r.jobs["sunday"].Job; j.From.Format(time.RFC3339) != "2026-11-01T05:00:00Z" || j.Timezone != "Etc/UTC" {
		t.Errorf("%+v", j)
	}
	if got := strings.Join(r.jobs["tidy"].Action.Exec.Args, " "); got != "python3 call.py timers:tidy" {
		t.Errorf("action %q", got)
	}
}

// A store deletes a job that it cannot restore. The script must not let it.
func TestJobsOfAStoreAreReadAndTheStoreStaysAsItIs(t *testing.T) {
	t.Parallel()
	needPackage(t, "python3-apscheduler")
	needPackage(t, "python3-sqlalchemy")
	store := filepath.Join(t.TempDir(), "jobs.db")
	program := "from apscheduler.schedulers.background import BackgroundScheduler\ndef tidy(n): pass\nGONE\nscheduler = BackgroundScheduler(timezone='UTC')\nscheduler.add_jobstore('sqlalchemy', url='sqlite:///" + store + "')\n"
	fill := exec.Command(debianPython, "-c", "import timers\ns = timers.scheduler\ns.start(paused=True)\ns.add_job(timers.tidy, 'cron', hour=7, args=[1], id='stored')\ns.add_job(timers.gone, 'cron', hour=8, id='lost')\ns.shutdown()")
	fill.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(fill.Dir, "timers.py"), []byte(strings.Replace(program, "GONE", "def gone(): pass", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := fill.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before, err := os.ReadFile(store)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, "apscheduler_jobs.py", "timers", map[string]string{"timers.py": strings.Replace(program, "GONE", "", 1)})
	r.check(t, map[string]string{"stored": "0 7 * * *"}, map[string]string{"default": "a job in this store cannot be restored"})
	if after, err := os.ReadFile(store); err != nil || string(after) != string(before) {
		t.Errorf("the store has changed (%v)", err)
	}
}

// The slots of the imported jobs are the instants at which the trigger of the library fires.
func TestSlotsOfAnImportedJobAreTheInstantsOfItsTrigger(t *testing.T) {
	t.Parallel()
	needPackage(t, "python3-apscheduler")
	const fired = `
import sys, json
from datetime import datetime, timedelta, timezone
sys.argv = ["x", "timers:make"]
import apscheduler.schedulers.blocking as b
import timers
def start(self):
    for job, _, _ in self._pending_jobs:
        at, now = None, datetime(2026, 12, 1, tzinfo=timezone.utc)
        fires = []
        for _ in range(60):
            at = job.trigger.get_next_fire_time(at, now)
            if at is None: break
            now = at + timedelta(microseconds=1)
            fires.append(int(at.timestamp()))
        print(json.dumps([job.id, fires]))
b.BlockingScheduler.start = start
timers.make()
`
	r := run(t, "apscheduler_jobs.py", "timers:make", map[string]string{"timers.py": timers})
	cmd := exec.Command(debianPython, "-c", fired)
	cmd.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(cmd.Dir, "timers.py"), []byte(timers), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		var name string
		var fires []int64
		if err := json.Unmarshal(lines.Bytes(), &[]any{&name, &fires}); err != nil {
			t.Fatal(err)
		}
		e, known := r.jobs[name]
		if !known || len(fires) == 0 || name == "interval" { // which has jitter
			continue
		}
		s, err := job.ParseSchedule(name, e.Job.Plan())
		if err != nil {
			t.Fatal(err)
		}
		compared++
		at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second)
		for i, want := range fires {
			if at = s.Next(at); at.Unix() != want {
				t.Errorf("%s: run %d at %v, want %v", name, i, at, time.Unix(want, 0).UTC())
				break
			}
		}
	}
	if compared < 8 {
		t.Errorf("only %d jobs were compared", compared)
	}
}
