package migrate

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/job"
)

func TestTriggersWithoutATimeZoneAreNamedUnlessTheMachinesIsGiven(t *testing.T) {
	t.Parallel()
	const scheduler = "s = BlockingScheduler(timezone='Europe/Berlin')\n"
	for _, tc := range []struct {
		text, machine, zone string
		noted               bool
	}{
		{scheduler + "s.add_job('m:f', 'cron', hour=3)", "", "Europe/Berlin", false},
		{scheduler + "s.add_job('m:f', CronTrigger(hour=3))", "", "UTC", true}, // an object does not have the scheduler's
		{scheduler + "s.add_job('m:f', CronTrigger(hour=3))", "Asia/Tokyo", "Asia/Tokyo", false},
		{scheduler + "s.add_job('m:f', CronTrigger(hour=3, timezone='Asia/Tokyo'))", "", "Asia/Tokyo", false},
		{scheduler + "s.add_job('m:f', CronTrigger(hour=3, start_date=datetime(2027, 1, 1, tzinfo=ZoneInfo('Asia/Tokyo'))))", "", "Asia/Tokyo", false},
		{scheduler + "s.add_job('m:f', CronTrigger(minute=3))", "", "UTC", false}, // any zone has the same minutes
		{"s = BlockingScheduler()\ns.add_job('m:f', 'cron', hour=3)", "", "UTC", true},
		{"s = BlockingScheduler()\ns.add_job('m:f', 'cron', hour=3)", "UTC", "UTC", false},
		{"s = BlockingScheduler()\ns.add_job('m:f', CronTrigger.from_crontab('0 3 * * *'))", "", "UTC", true},
		{"s = BlockingScheduler()\ns.add_job('m:f', 'interval', hours=1)", "", "", false},
		{"s = BlockingScheduler()\ns.add_job('m:f', 'interval', hours=1, start_date='2027-01-01 00:00:00')", "", "", true},
		{"s = BlockingScheduler()\ns.add_job('m:f', 'interval', hours=1, start_date='2027-01-01T00:00:00Z')", "", "", false},
		{"s = BlockingScheduler()\ns.add_job('m:f', 'date', run_date='2027-01-01 00:00:00')", "", "", true},
	} {
		r := APScheduler(tc.text, tc.machine)
		noted := slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Line == 2 && strings.Contains(n.Text, "import with --tz") })
		if len(r.Jobs) != 1 || r.Jobs[0].Job.Timezone != tc.zone || noted != tc.noted {
			t.Errorf("%s on a machine in %q: %+v, want the zone %q and a note: %v", tc.text, tc.machine, r, tc.zone, tc.noted)
		}
	}
}

// The times are those of APScheduler 3.11.2 and 4 itself; in the gap, the job runs at its end.
func TestACronTriggersJobRunsTwiceAtATimeThatOccursTwice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{ // when the clocks of Berlin go forward and back
		`s.add_job("m:f", "cron", hour=2, minute=30)`:            {"01:00", "00:30 01:30"},
		`s.add_job("m:f", "cron", hour="1-3")`:                   {"00:00 01:00", "23:00 00:00 01:00 02:00"},
		`s.add_schedule("m:f", CronTrigger(hour=2, minute=30))`:  {"", "00:30 01:30"},
		`s.add_job("m:f", "cron", minute="*/20", hour=2)`:        {"01:00", "00:00 00:20 00:40 01:00 01:20 01:40"},
		`s.add_job("m:f", "cron", hour="*", minute=30, day="*")`: {"23:30 00:30 01:30 02:30", "22:30 23:30 00:30 01:30 02:30"},
	} {
		r := APScheduler(`BlockingScheduler(timezone="Europe/Berlin")`+"\n"+text, "Europe/Berlin")
		if len(r.Jobs) != 1 {
			t.Errorf("%s: %+v", text, r)
			continue
		}
		for i, from := range []time.Time{time.Date(2026, 3, 28, 22, 59, 0, 0, time.UTC), time.Date(2026, 10, 24, 21, 59, 0, 0, time.UTC)} {
			var got []string
			for _, at := range slotsOf(t, r.Jobs[0].Job, from, from.Add([]time.Duration{4 * time.Hour, 5 * time.Hour}[i])) {
				got = append(got, at.Format("15:04"))
			}
			if strings.Join(got, " ") != want[i] {
				t.Errorf("%s from %v: %v, want %s", text, from, got, want[i])
			}
		}
	}
}

func TestAYearAndTheDatesOfATriggerAllBoundItsJob(t *testing.T) {
	t.Parallel()
	for dates, want := range map[string]string{
		"":                        "2027-01-01 00:00:00 2028-01-01 00:00:00",
		", start_date=2026-06-01": "2027-01-01 00:00:00 2028-01-01 00:00:00",
		", start_date=2027-06-01": "2027-06-01 00:00:00 2028-01-01 00:00:00",
		", end_date=2027-07-01":   "2027-01-01 00:00:00 2027-07-01 00:00:01",
		", end_date=2030-01-01":   "2027-01-01 00:00:00 2028-01-01 00:00:00",
		", start_time=2027-06-01": "2027-06-01 00:00:00 2028-01-01 00:00:00",
	} {
		dates = regexp.MustCompile(`[0-9-]{10}`).ReplaceAllString(dates, "'$0'")
		r := APScheduler("s = BlockingScheduler(timezone='UTC')\ns.add_job('m:f', CronTrigger(year=2027, hour=3, timezone='UTC'"+dates+"))", "UTC")
		if len(r.Jobs) != 1 {
			t.Errorf("%s: %+v", dates, r)
			continue
		}
		if j := r.Jobs[0].Job; j.From.Format(time.DateTime)+" "+j.Until.Format(time.DateTime) != want {
			t.Errorf("%s: from %v until %v, want %s", dates, j.From, j.Until, want)
		}
	}
}

func TestJobsOfAPSchedulerKeepItsDefaults(t *testing.T) {
	t.Parallel()
	const scheduler = "s = BlockingScheduler(timezone='UTC')\n"
	latest, all := job.CatchUp{Policy: job.CatchUpLatest, Within: time.Hour}, job.CatchUp{Policy: job.CatchUpAll, Within: time.Hour}
	for text, want := range map[string]job.Job{
		"s.add_job('m:f', 'cron', hour=3)":                                                                                    {CatchUp: job.CatchUp{Policy: job.CatchUpNone}},
		"s.add_job('m:f', 'cron', hour=3, misfire_grace_time=3600)":                                                           {CatchUp: latest, Deadline: time.Hour},
		"s.add_job('m:f', 'cron', hour=3, misfire_grace_time=3600, coalesce=False)":                                           {CatchUp: all, Deadline: time.Hour},
		"s.add_job('m:f', 'cron', hour=3, misfire_grace_time=30)":                                                             {CatchUp: job.CatchUp{Policy: job.CatchUpNone}, Deadline: 30 * time.Second},
		"s.add_schedule('m:f', CronTrigger(hour=3))":                                                                          {CatchUp: job.CatchUp{Policy: job.CatchUpLatest}},
		"s.add_schedule('m:f', CronTrigger(hour=3), coalesce=CoalescePolicy.all, misfire_grace_time=timedelta(hours=1))":      {CatchUp: all, Deadline: time.Hour},
		"s.add_schedule('m:f', CronTrigger(hour=3), max_jitter=timedelta(seconds=90))":                                        {CatchUp: job.CatchUp{Policy: job.CatchUpLatest}, Spread: 90 * time.Second},
		"s.add_job('m:f', 'cron', hour=3, jitter=90)":                                                                         {CatchUp: job.CatchUp{Policy: job.CatchUpNone}, Spread: 90 * time.Second},
		"s.configure(job_defaults={'misfire_grace_time': 3600, 'coalesce': False})\ns.add_job('m:f', CronTrigger(hour=3))\n":  {CatchUp: all, Deadline: time.Hour},
		"s.configure({'apscheduler.job_defaults.misfire_grace_time': '3600'})\ns.add_job('m:f', 'cron', hour=3, jitter=None)": {CatchUp: latest, Deadline: time.Hour},
	} {
		r := APScheduler(scheduler+text, "UTC")
		if len(r.Jobs) != 1 {
			t.Errorf("%s: %+v", text, r)
			continue
		}
		if j := r.Jobs[0].Job; j.CatchUp != want.CatchUp || j.Deadline != want.Deadline || j.Spread != want.Spread {
			t.Errorf("%s: %+v, want %+v", text, j, want)
		}
	}
}

func TestBeatsTimeZoneIsNamedIfAnotherFileMaySetIt(t *testing.T) {
	t.Parallel()
	const entry = "\napp.conf.beat_schedule = {'a': {'task': 't', 'schedule': crontab(hour=7, minute=0)}}"
	for _, tc := range []struct {
		text, given, zone string
		notes             int
	}{
		{"app = Celery()", "", "UTC", 0},
		{"app.config_from_object('django.conf:settings', namespace='CELERY')", "", "UTC", 1},
		{"app.config_from_object('django.conf:settings', namespace='CELERY')", "Asia/Tokyo", "Asia/Tokyo", 0},
		{"app.conf.enable_utc = False", "", "UTC", 1},
		{"app.conf.update(timezone='Europe/Berlin', enable_utc=False)", "", "Europe/Berlin", 0},
	} {
		r := Celery(tc.text+entry, tc.given)
		if len(r.Jobs) != 1 || r.Jobs[0].Job.Timezone != tc.zone || len(r.Notes) != tc.notes || tc.notes == 1 && (r.Notes[0].Line != 1 || !strings.Contains(r.Notes[0].Text, "--tz")) {
			t.Errorf("%s with %q: %+v", tc.text, tc.given, r)
		}
	}
}

func TestBeatsMissedRunsAreCaughtUpAsItDoes(t *testing.T) {
	t.Parallel()
	const entries = "\napp.conf.beat_schedule = {'a': {'task': 't', 'schedule': crontab(hour=7, minute=0)}, 'b': {'task': 't', 'schedule': 60}}"
	latest := job.CatchUp{Policy: job.CatchUpLatest}
	for text, want := range map[string][2]job.CatchUp{
		"": {latest, latest},
		"app.conf.beat_cron_starting_deadline = None": {latest, latest},
		"app.conf.beat_cron_starting_deadline = 600":  {{Policy: job.CatchUpLatest, Within: 10 * time.Minute}, latest},
		"app.conf.beat_cron_starting_deadline = 30":   {{Policy: job.CatchUpNone}, latest},
	} {
		r := Celery(text+entries, "UTC")
		if len(r.Jobs) != 2 || r.Jobs[0].Job.CatchUp != want[0] || r.Jobs[1].Job.CatchUp != want[1] {
			t.Errorf("%s: %+v, want %+v", text, r, want)
		}
	}
}
