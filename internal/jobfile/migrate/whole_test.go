package migrate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// wholes are texts of the formats, for TestWhatFollowsAValidInputIsReadOrNamed. one returns a text with a
// job of that name, and between may stand between two texts.
var wholes = map[string]struct {
	one     func(name string) string
	between []string
	garbage []string
}{
	"k8s": {
		func(name string) string {
			return fmt.Sprintf("apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: %s}\nspec: {schedule: \"0 1 * * *\", timeZone: UTC, jobTemplate: {spec: {template: {spec: {containers: [{name: a, command: [/bin/a]}]}}}}}\n", name)
		},
		yamlNoise,
		[]string{"- a\n", "only text\n", "a: b\n", "kind: Cronjob\nspec: {schedule: \"* * * * *\"}\n", "kind: CronWorkflow\nspec: {schedules: [a]}\n", "kind: CronJobList\n", "a: [\n", "kind: CronJob\nspec: {suspend: maybe}\n", "kind: List\nitems: [x]\n"},
	},
	"github": {
		func(name string) string {
			return fmt.Sprintf("name: %s\non:\n  schedule:\n    - cron: '0 1 * * *'\n", name)
		},
		yamlNoise, []string{"- a\n", "only text\n", "a: b\n", "on: {schedule: 7}\n", "a: [\n", "on: {schedule: [{cron: x}]}\n"},
	},
	"sidekiq": {
		func(name string) string { return fmt.Sprintf("%s:\n  cron: '0 1 * * *'\n  class: Work\n", name) },
		yamlNoise, []string{"- a\n", "only text\n", "a: b\n", "a: [\n", "a: {cron: x}\n", "7\n"},
	},
	"crontab": {
		func(name string) string { return "0 1 * * * /bin/" + name + "\n" },
		[]string{"\n", "# a comment\n", " \t\n", "\r\n"},
		[]string{"@reboot x\n", "nonsense\n", "* * *\n", "@weird x\n", "99 * * * * x\n"},
	},
	"systemd": {
		func(name string) string {
			return fmt.Sprintf("# /etc/systemd/system/%[1]s.timer\n[Timer]\nOnCalendar=daily\n\n# /etc/systemd/system/%[1]s.service\n[Service]\nExecStart=/bin/a\n", name)
		},
		[]string{"\n", "# a comment\n", "; another\n", "[Install]\nWantedBy=timers.target\n"},
		[]string{
			"nonsense\n", "Nonsense=7\n", "# /etc/systemd/system/w.path\n[Path]\nPathExists=/x\n", "# /etc/systemd/system/w.timer\n[Timer]\nOnCalendar=daily\n",
			"# /etc/systemd/system/y.service\n[Service]\nExecStart=/bin/y\n", "# /etc/systemd/system/z.timer.d/a.conf\n[Timer]\nOnCalendar=daily\n",
		},
	},
}

// yamlNoise is what may stand between two documents without being one.
var yamlNoise = []string{
	"---\n", "--- \n", "--- # Source: chart/templates/b.yaml\n", "---\n# Source: chart/templates/b.yaml\n", "# a comment\n", "\n", "  \n", "---\nnull\n", "---\n~\n", "...\n", "---\n...\n", "--- null\n", "\r\n", "---\r\n",
}

func TestWhatFollowsAValidInputIsReadOrNamed(t *testing.T) {
	t.Parallel()
	for name, w := range wholes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				noise := rapid.SliceOfN(rapid.SampledFrom(w.between), 0, 4)
				between := strings.Join(noise.Draw(t, "between"), "")
				between += yamlSeparator(name)
				text := strings.Join(noise.Draw(t, "before"), "") + yamlSeparator(name) + w.one("first") + between
				wantJobs, more, from := []string{"first"}, "garbage", strings.Count(text, "\n")+1
				if rapid.Bool().Draw(t, "valid") {
					more = "valid"
					text += w.one("second")
					wantJobs = append(wantJobs, "second")
				} else {
					text += rapid.SampledFrom(w.garbage).Draw(t, "garbage")
				}
				text += strings.Join(noise.Draw(t, "after"), "")
				r, err := formats[name](text)
				if err != nil {
					return // refused as a whole
				}
				if got := jobNames(r); !slices.Equal(got, wantJobs) {
					t.Fatalf("%s: jobs %v, notes %+v, want %v of\n%s", more, got, r.Notes, wantJobs, text)
				}
				if more == "garbage" && !slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Line >= from }) {
					t.Fatalf("no note about line %d or later: %+v of\n%s", from, r.Notes, text)
				}
			})
		})
	}
}

func jobNames(r Result) (names []string) {
	for _, j := range r.Jobs {
		names = append(names, j.Job.Name)
	}
	return names
}

func yamlSeparator(format string) string {
	if wholes[format].between[0] == "---\n" {
		return "---\n"
	}
	return ""
}

// Two documents and what may stand between them are never refused.
func TestDocumentsOfAManifestThatAreEmptyAreSkipped(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"k8s", "github", "sidekiq"} {
		for _, noise := range yamlNoise {
			text := wholes[format].one("first") + noise + "---\n" + wholes[format].one("second")
			if r, err := formats[format](text); err != nil || !slices.Equal(jobNames(r), []string{"first", "second"}) {
				t.Errorf("%s: %v, %v of\n%s", format, err, jobNames(r), text)
			}
		}
	}
}
