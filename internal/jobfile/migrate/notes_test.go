package migrate

import (
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/jobfile/migrate/unitfile"
)

func TestImportSaysWhatIsDifferent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		format, text string
		jobs         []string // name and schedule of each
		notes        []string // what each begins with or contains
	}{
		"a value that a tool has put in quotes is what it stands for": {
			"k8s", "kind: CronJob\nmetadata: {name: a}\nspec:\n  schedule: '0 7 * * *'\n  suspend: \"true\"\n  startingDeadlineSeconds: '60'\n  jobTemplate: {spec: {suspend: no, template: {spec: {containers: [{command: [/bin/a]}]}}}}\n",
			[]string{"a 0 7 * * *"}, []string{"it is suspended, which"},
		},
		"a value of another type is quoted with what would be right": {
			"k8s", "kind: CronJob\nmetadata: {name: a}\nspec:\n  suspend: maybe\n---\nkind: CronJob\nspec: {schedule: [a]}\n---\nkind: CronJob\nspec: []\n---\nkind: CronJob\nspec: {startingDeadlineSeconds: 1.5}\n", nil,
			[]string{`spec.suspend "maybe": want true or false`, "spec.schedule is a list: want text", "spec is a list: want a mapping", `spec.startingDeadlineSeconds "1.5": want a whole number`},
		},
		"two time zones of a CronJob contradict each other": {
			"k8s", "kind: CronJob\nmetadata: {name: a}\nspec:\n  schedule: 'CRON_TZ=Asia/Tokyo 0 7 * * *'\n  timeZone: Europe/Berlin\n", nil,
			[]string{"not carried over: its schedule has the time zone Asia/Tokyo, and timeZone is Europe/Berlin: leave one of them out"},
		},
		"another kind with a schedule is named": {
			"k8s", "kind: CronWorkflow\nspec: {schedules: ['0 7 * * *']}\n---\nkind: ConfigMap\ndata: {a: b}\n", nil,
			[]string{`its spec has schedules, and its kind is "CronWorkflow"`},
		},
		"a step that is longer than its field is its first value": {
			"crontab", "*/90 * * * * /bin/a\n5-50/61 */24 * * * /bin/b\n0 */25 * * * /bin/c\n", []string{"a 0 * * * *", "b 5 */24 * * *", "c 0 0 * * *"},
			[]string{"*/90: the step is longer than its range", "5-50/61: the step", "*/25: the step"},
		},
		"a step of a CronJob that is longer than its field": {
			"k8s", strings.Replace(manifestOf("X"), "X", "*/61 * * * *", 1), []string{"a 0 * * * *"}, []string{"*/61: the step is longer than its range"},
		},
		"the words of FreeBSD": {
			"crontab", "@every_minute /bin/a\n@30 /bin/b\n", []string{"a * * * * *"}, []string{`@30 is an interval from the end of the last run (FreeBSD): write schedule: "@every 30s"`},
		},
		"an anacrontab is recognised": {
			"crontab", "1 5 cron.daily nice run-parts /etc/cron.daily\n@monthly 45 cron.monthly nice run-parts /etc/cron.monthly\n", nil,
			[]string{"1 5 cron.daily nice run-parts /etc/cron.daily is a line of an anacrontab", "@monthly 45 cron.monthly nice run-parts /etc/cron.monthly is a line of an anacrontab"},
		},
		"what the program that enqueues must do is said": {
			"sidekiq", "work:\n  cron: '0 7 * * *'\n  class: Work\n  active_job: true\n  retry: 3\n", []string{"work 0 7 * * *"},
			[]string{"active_job: true: let enqueue.rb call perform_later", "retry: 3: let enqueue.rb put it into the item"},
		},
		"a schedule may be below scheduler, and an interval may have options": {
			"sidekiq", ":scheduler:\n  :schedule:\n    clean:\n      every: ['30m', first_in: '10s']\n      class: Clean\n    daily:\n      cron: ['30 6 * * 1', first_in: '1m']\n      class: Daily\n",
			[]string{"clean @every 30m0s", "daily 30 6 * * 1"},
			[]string{"not carried over: first_in: 10s", "@every 30m0s counts from 1970", "not carried over: first_in: 1m"},
		},
		"an alias and a merge key are what they stand for": {
			"sidekiq", "report: &r\n  cron: '0 7 * * *'\n  class: Report\nlater:\n  <<: *r\n  cron: '0 8 * * *'\nlatest:\n  cron: '0 9 * * *'\n  <<: [*r]\nsame: *r\n",
			[]string{"report 0 7 * * *", "later 0 8 * * *", "latest 0 9 * * *", "same 0 7 * * *"}, nil,
		},
		"words are no expression": {
			"sidekiq", "work:\n  cron: every day at 5 pm\n  class: Work\n", nil, []string{`not carried over: cron "every day at 5 pm" is not five or six fields of cron`},
		},
		"a variable that refers to another one is named": {
			"k8s", "kind: CronJob\nmetadata: {name: a}\nspec: {schedule: '5 * * * *', jobTemplate: {spec: {template: {spec: {containers: [{command: [x], env: [{name: HOST, value: h}, {name: URL, value: 'http://$(HOST)/'}]}]}}}}}\n",
			[]string{"a 5 * * * *"},
			[]string{"not carried over: the values of $(NAME) in the variable URL"},
		},
		"cron does not know @every": {
			"crontab", "@every 5m /bin/true\n", nil, []string{"not carried over: cron does not know @every: write */5 * * * *"},
		},
		"cron knows no spaces but the blank and the tab": {
			"crontab", "*/9 * */2 \v 1-5 /bin/true\n0 4\u00a05 * * * /bin/true\n@daily\u0085 /bin/true\n0\t5 * * 1 /bin/five\n", []string{"five 0 5 * * 1"},
			[]string{`not carried over: cron does not know a character of "\v"`, `not carried over: cron does not know a character of "4\u00a05"`, `not carried over: cron does not know a character of "@daily\u0085"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := formats[tc.format](tc.text)
			if err != nil {
				t.Fatal(err)
			}
			var jobs []string
			for _, j := range r.Jobs {
				jobs = append(jobs, j.Job.Name+" "+j.Job.Schedule)
				if j.Job.DSTGap != "" || j.Job.DSTOverlap != "" {
					t.Errorf("%s: it has settings of clock changes, which do not concern it: %+v", j.Job.Name, j.Job)
				}
			}
			if !slices.Equal(jobs, tc.jobs) {
				t.Errorf("jobs %q, want %q", jobs, tc.jobs)
			}
			if len(r.Notes) != len(tc.notes) {
				t.Fatalf("notes %+v, want %q", r.Notes, tc.notes)
			}
			for i, n := range r.Notes {
				if !strings.Contains(n.Text, tc.notes[i]) {
					t.Errorf("note %q, want %q", n.Text, tc.notes[i])
				}
			}
		})
	}
}

func TestABackoffLimitBeyondTheMostAttemptsIsCappedWithANote(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]struct{ attempts, notes int }{"999": {1000, 0}, "1000": {1000, 1}, "2147483647": {1000, 1}, "9223372036854775807": {1000, 1}} {
		r, err := Kubernetes([]byte(strings.Replace(manifestOf("@daily"), "{template", "{backoffLimit: "+limit+", template", 1)), "UTC")
		if err != nil || len(r.Jobs) != 1 || r.Jobs[0].Job.Retry.Attempts != want.attempts || len(r.Notes) != want.notes {
			t.Errorf("%s: %+v, %v, want %+v", limit, r, err, want)
		}
	}
}

func TestATimersJobHasTheNameOfItsService(t *testing.T) {
	t.Parallel()
	r := Systemd([]unitfile.File{
		{Path: "nightly.timer", Text: "[Timer]\nOnCalendar=*-*-* 03:00:00\nUnit=backup.service\n"},
		{Path: "noon.timer", Text: "[Timer]\nOnCalendar=*-*-* 12:00:00\nUnit=backup.service\n"},
		{Path: "backup.service", Text: "[Service]\nExecStart=/usr/bin/backup\n"},
	}, "UTC")
	var names []string
	for _, j := range r.Jobs {
		names = append(names, j.Job.Name)
	}
	if !slices.Equal(names, []string{"backup", "backup-2"}) {
		t.Errorf("%q, %+v", names, r.Notes)
	}
}

func TestACrontabsJobHasTheNameOfTheCommandThatCronLogs(t *testing.T) {
	t.Parallel()
	for command, logged := range map[string]string{
		`/usr/bin/poll date +\%F`:            "/usr/bin/poll date +%F",
		`/usr/bin/poll \%Y-\%m 2>&1 %hello%`: "/usr/bin/poll %Y-%m 2>&1 ",
	} {
		r := Crontab("0 3 * * * "+command, "UTC", false)
		if len(r.Jobs) != 1 || r.Jobs[0].Job.Name != CommandName(logged) || LoggedCommand(r.Jobs[0].Exec.Args) != logged {
			t.Errorf("%s: %+v, want the name %s", command, r, CommandName(logged))
		}
	}
}

func TestASchedulerThatIsDisabledIsNamed(t *testing.T) {
	t.Parallel()
	for enabled, notes := range map[string]int{":enabled: true": 0, ":enabled: false": 1} {
		r, err := Sidekiq([]byte(":scheduler:\n  "+enabled+"\n  :schedule:\n    work:\n      cron: '0 7 * * *'\n      class: Work\n"), "UTC")
		if err != nil || len(r.Jobs) != 1 || len(r.Notes) != notes {
			t.Errorf("%s: %+v, %v", enabled, r, err)
		}
		for _, n := range r.Notes {
			if n.Line != 2 || !strings.Contains(n.Text, "cronce job pause") {
				t.Errorf("%s: %+v", enabled, n)
			}
		}
	}
}

func TestATimerOfATemplateStartsItsInstance(t *testing.T) {
	t.Parallel()
	service := unitfile.File{Path: "/etc/systemd/system/backup@.service", Text: "[Service]\nExecStart=/usr/bin/backup %i %n %p\n"}
	timer := "[Timer]\nOnCalendar=*-*-* 03:00:00 Europe/Berlin\n"
	r := Systemd([]unitfile.File{{Path: "/etc/systemd/system/backup@db.timer", Text: timer}, service}, "UTC")
	if len(r.Jobs) != 1 || r.Jobs[0].Job.Name != "backup-db" || strings.Join(r.Jobs[0].Exec.Args, " ") != "/usr/bin/backup db backup@db.service backup" || len(r.Notes) != 1 {
		t.Errorf("%+v", r)
	}
	escaped := unitfile.File{Path: "/etc/systemd/system/my-backup@.service", Text: "[Unit]\nDescription=Back up %I of %H\n[Service]\nExecStart=/usr/bin/backup %I %P %j\n"}
	r = Systemd([]unitfile.File{{Path: `/etc/systemd/system/my-backup@srv-db\x2d1.timer`, Text: timer}, escaped}, "UTC")
	if len(r.Jobs) != 1 || strings.Join(r.Jobs[0].Exec.Args, " ") != "/usr/bin/backup srv/db-1 my/backup backup" || !slices.Contains(r.Jobs[0].Comments, "Back up srv/db-1 of %H") {
		t.Errorf("an escaped instance: %+v", r)
	}
	r = Systemd([]unitfile.File{{Path: "/etc/systemd/system/backup@.timer", Text: timer}, service}, "UTC")
	if len(r.Jobs) != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, "copy it to backup@INSTANCE.timer") {
		t.Errorf("a template: %+v", r)
	}
}
