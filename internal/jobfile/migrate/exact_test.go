package migrate

import (
	"slices"
	"strings"
	"testing"
)

// What the old scheduler refuses, or reads as other times, is not imported as if it were right.
func TestImportRefusesWhatTheOldSchedulerReadsOtherwise(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		format, text string
		note         string // the only one
	}{
		{"crontab", "0 0 * * * * /bin/true", "more than five fields before its command"},
		{"crontab", "0 0 ? * 1 /bin/true", "cron does not know the question mark"},
		{"crontab", "H 3 * * * /bin/true", "only Cronce and Jenkins know H"},
		{"crontab", "0 0 * * 1,THU /bin/true", ""},
		{"crontab", "0 0 * * FRI-SUN/2 /bin/true", "write 7 for SUN"},
		{"crontab", "0 0 * * * -x /bin/true", `cron reads "-x" as an option`},
		{"crontab", "0 0 L-3,15W * * /bin/true", ""}, // of supercronic
		{"crontab", "0 0 * * 5L,MON#2 /bin/true", ""},
		{"crontab", "0 0 */2 * 5L /bin/true", "no counterpart together with a day of the month that must match too"},
		{"k8s", manifestOf("0 0 LW * *"), ""},
		{"k8s", manifestOf("0 0 * * FRI#2"), ""},
		{"k8s", manifestOf("0 0 0 * * *"), "want five fields"},
		{"k8s", manifestOf("@at 2027-01-01T00:00:00Z"), "want five fields"},
		{"k8s", manifestOf("none"), "want five fields"},
		{"k8s", manifestOf("H 0 * * *"), "only Cronce and Jenkins know H"},
		{"k8s", manifestOf("@daily"), ""},
		{"sidekiq", "a: {cron: '0 0 * * 1/2', class: A}", "the weekdays 1/2 are other days to fugit"},
		{"sidekiq", "a: {cron: '0 0 * * 3,*', class: A}", "the weekdays 3,* are other days to fugit"},
		{"sidekiq", "a: {cron: '0 0 * * *,3', class: A}", "the weekdays *,3 are other days to fugit"},
		{"sidekiq", "a: {cron: '0 0 13 * */1', class: A}", "the weekdays */1 are other days to fugit"},
		{"sidekiq", "a: {cron: '0 0 13 * */2', class: A}", ""},
		{"sidekiq", "a: {cron: '0 0 1 jul *', class: A}", ""},
		{"sidekiq", "a: {cron: '0 0 * * mon#-2', class: A}", "has a form that only fugit knows"},
		{"sidekiq", "a: {cron: '0 0 ? * 1', class: A}", "fugit does not know the question mark"},
	} {
		r, err := formats[tc.format](tc.text)
		switch {
		case err != nil:
			t.Errorf("%s: %v", tc.text, err)
		case tc.note == "" && (len(r.Jobs) != 1 || len(r.Notes) != 0):
			t.Errorf("%s: %+v, want a job", tc.text, r)
		case tc.note != "" && (len(r.Jobs) != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, tc.note)):
			t.Errorf("%s: %+v, want no job and the note %q", tc.text, r, tc.note)
		}
	}
}

// The README of fugit has these forms.
func TestDaysThatFugitCountsFromTheEndAreCarriedOver(t *testing.T) {
	t.Parallel()
	for cron, want := range map[string]string{
		"0 0 L * *":                    "0 0 L * *",
		"0 0 last * *":                 "0 0 L * *",
		"0 0 15,-1 * *":                "0 0 15,L * *",
		"0 0 -2 * * Europe/Berlin":     "0 0 L-1 * *",
		"0 0 1-5 * *":                  "0 0 1-5 * *",
		"0 0 * * mon#2":                "0 0 * * mon#2",
		"0 0 * * mon#-1":               "0 0 * * monL",
		"5 0 0 * * tue#L,3#last,fri#2": "5 0 0 * * tueL,3L,fri#2",
	} {
		r, err := formats["sidekiq"]("a: {cron: '" + cron + "', class: A}")
		if err != nil || len(r.Jobs) != 1 || len(r.Notes) != 0 || r.Jobs[0].Job.Schedule != want {
			t.Errorf("%s: %+v, %v, want %q", cron, r, err, want)
		}
	}
}

func manifestOf(schedule string) string {
	return "kind: CronJob\nmetadata: {name: a}\nspec: {schedule: '" + schedule + "', jobTemplate: {spec: {template: {spec: {containers: [{command: [x]}]}}}}}\n"
}

func TestACrontabsExtensionsAreReadAsCronieReadsThem(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text    string
		want    []string // schedule and zone of each
		command string   // of the last job
		notes   []string
	}{
		{text: "-@daily /bin/a", want: []string{"@daily UTC"}, command: "/bin/a"},
		{text: "-5 4 * * * /bin/a", want: []string{"5 4 * * * UTC"}, command: "/bin/a"},
		{text: "5 4 * * * -n  /bin/a -n", want: []string{"5 4 * * * UTC"}, command: "/bin/a -n"},
		{text: `5 4 * * * echo \\%in`, want: []string{"5 4 * * * UTC"}, command: "printf '%s\\n' 'in' | {\necho \\\\\n}"},
		{text: `5 4 * * * echo \%x\y`, want: []string{"5 4 * * * UTC"}, command: `echo %x\y`},
		{
			text: "CRON_TZ=Asia/Tokyo\n5 4 * * * /bin/a\nCRON_TZ=\n5 4 * * * /bin/b", want: []string{"5 4 * * * Asia/Tokyo", "5 4 * * * UTC"},
			command: "/bin/b", notes: []string{"the cron of Debian and Ubuntu ignores it"},
		},
		{
			text: "5 4 * * FRI-SUN /bin/a", want: []string{"5 4 * * FRI-SUN UTC"}, command: "/bin/a",
			notes: []string{"FRI-SUN includes Sunday here, as under cronie"},
		},
		{text: "LOGNAME=ada\n5 4 * * * /bin/a", want: []string{"5 4 * * * UTC"}, command: "/bin/a", notes: []string{"cron sets it to the name of the user"}},
	} {
		r := Crontab(tc.text, "UTC", false)
		good := slices.Equal(schedulesOf(r), tc.want) && len(r.Notes) == len(tc.notes)
		for i := range min(len(r.Notes), len(tc.notes)) {
			good = good && strings.Contains(r.Notes[i].Text, tc.notes[i])
		}
		if !good || r.Jobs[len(r.Jobs)-1].Exec.Args[2] != tc.command {
			t.Errorf("%s: %+v, want %+v", tc.text, r, tc)
		}
	}
}

func TestAWorkflowThatRunsMoreOftenThanGitHubStartsItHasANote(t *testing.T) {
	t.Parallel()
	for schedule, often := range map[string]bool{"* * * * *": true, "*/7 * * * *": true, "58,2 * * * *": true, "*/5 * * * *": false, "0 3 1 1 *": false, "1,2 3 1 1 *": true} {
		r, err := GitHub([]byte("on: {schedule: [{cron: '"+schedule+"'}]}"), "a.yml")
		noted := slices.ContainsFunc(r.Notes, func(n Note) bool { return strings.Contains(n.Text, "every five minutes at most") })
		if err != nil || len(r.Jobs) != 1 || noted != often {
			t.Errorf("%s: %+v, %v", schedule, r, err)
		}
	}
}

func TestAVariableOfACronJobThatIsNotTextHasANote(t *testing.T) {
	t.Parallel()
	r, err := Kubernetes([]byte(strings.Replace(manifestOf("0 3 * * *"), "command: [x]", "command: [x], env: [{name: PORT, value: 80}, {name: EMPTY}]", 1)), "UTC")
	if err != nil || len(r.Jobs) != 1 || len(r.Jobs[0].Exec.Env) != 1 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, "the variable PORT") {
		t.Errorf("%+v, %v", r, err)
	}
}
