package words_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/schedule/words"
	"github.com/cronce-io/cronce/job"
)

func TestWordsOfASchedule(t *testing.T) {
	t.Parallel()
	for schedule, want := range map[string]string{
		"* * * * *":                 "every minute",
		"* * * * * *":               "every second",
		"*/10 * * * * *":            "every 10 seconds",
		"*/7 * * * * *":             "at second 0, 7, 14, 21, 28, 35, 42, 49 and 56",
		"5,35 * * * * *":            "at second 5 and 35",
		"*/20 * 9-17 * * MON-FRI":   "every 20 seconds of each minute of the hours 9 to 17, Monday to Friday",
		"*/15 * * * *":              "every 15 minutes",
		"3/15 * * * *":              "every 15 minutes, from minute 3 of the hour on",
		"*/7 * * * *":               "at minute 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour",
		"*/15 9-17 * * *":           "every 15 minutes from 09:00 to 17:45",
		"* 9-17 * * *":              "every minute from 09:00 to 17:59",
		"0 * * * *":                 "every hour, on the hour",
		"5 * * * *":                 "every hour at minute 5",
		"30 5 * * * *":              "every hour at minute 5, at second 30",
		"0 */2 * * *":               "every 2 hours from 00:00 to 22:00",
		"30 9-17 * * 1-5":           "every hour from 09:30 to 17:30, Monday to Friday",
		"10 0,5,6,7,20,21,22 * * *": "at minute 10 of the hours 0, 5 to 7 and 20 to 22",
		"0 7 * * *":                 "every day at 07:00",
		"0 7 * * MON-FRI":           "Monday to Friday at 07:00",
		"0 7,19 * * SUN":            "every Sunday at 07:00 and 19:00",
		"0 7 * * 0,6":               "Saturday and Sunday at 07:00",
		"0 7 * * 0,3,5,6":           "Wednesday and Friday to Sunday at 07:00",
		"15 0 7 * * *":              "every day at 07:00:15",
		"0 3 1 * *":                 "on the 1st of the month at 03:00",
		"0 3 1,15 * *":              "on the 1st and 15th of the month at 03:00",
		"0 3 1-7 6 *":               "on the 1st to 7th in June at 03:00",
		"0 3 */2 * MON":             "on the 1st, 3rd, 5th, 7th, 9th, 11th, 13th, 15th, 17th, 19th, 21st, 23rd, 25th, 27th, 29th and 31st of the month, and every Monday at 03:00",
		"0 3 13 * FRI":              "on the 13th of the month, and every Friday at 03:00",
		"0 0 1 1 *":                 "every year on 1 January at 00:00",
		"0 0 24 12 MON":             "every year on 24 December, and every Monday in December at 00:00",
		"0 3 L * *":                 "on the last day of the month at 03:00",
		"0 3 L 2,8 *":               "on the last day in February and August at 03:00",
		"0 3 15,L * *":              "on the 15th and last day of the month at 03:00",
		"0 3 L-3 * *":               "on the last day but 3 of the month at 03:00",
		"0 3 15W,LW * *":            "on the last working day and working day nearest the 15th of the month at 03:00",
		"0 3 1W 1 *":                "on the working day nearest the 1st in January at 03:00",
		"0 3 * * 5L":                "on the last Friday of the month at 03:00",
		"0 3 * * FRI#2":             "on the 2nd Friday of the month at 03:00",
		"0 3 * 5 7#1,SUNL":          "on the 1st Sunday and last Sunday in May at 03:00",
		"0 3 * * MON,FRI#2":         "every Monday, and on the 2nd Friday of the month at 03:00",
		"0 3 L * FRI#2":             "on the last day of the month, and on the 2nd Friday of the month at 03:00",
		"0 12 * 6-8 *":              "every day in June to August at 12:00",
		"0 12 * 6-8 TUE":            "every Tuesday in June to August at 12:00",
		"0 3 1-31 * MON":            "every day at 03:00",
		"0 3 1-31 5 MON":            "every day in May at 03:00",
		"0 3 1-7 6 MON":             "on the 1st to 7th in June, and every Monday in June at 03:00",
		"@hourly":                   "every hour, on the hour",
		"@yearly":                   "every year on 1 January at 00:00",
		"@weekly":                   "every Sunday at 00:00",
		"@every 90s":                "every 90 seconds",
		"@every 1h":                 "every hour",
		"@every 36h":                "every 36 hours",
		"@every 48h":                "every 48 hours", // of elapsed time
		"@every 2m5s":               "every 2m5s",
		"@every 130s":               "every 2m10s",
		"@every 62m":                "every 62 minutes",
		"@at 2027-01-01T00:00:00Z":  "once, on 1 January 2027 at 00:00:00 UTC",
		"none":                      "when triggered",
		"H H * * *":                 "every day at " + hashed("report"),
		"61 * * * *":                "61 * * * *",
		"@every soon":               "@every soon",
		"@every 2w":                 "@every 2w", // it needs from
		"<script>":                  "<script>",
	} {
		if got := words.Of("report", job.Plan{Schedule: schedule}); got != want {
			t.Errorf("%s: %q, want %q", schedule, got, want)
		}
	}
	from := time.Date(2026, 3, 15, 23, 30, 0, 0, time.UTC)
	for schedule, want := range map[string]string{
		"@every 1d": "every day at 00:30", "@every 3d": "every 3 days at 00:30",
		"@every 1w": "every week on Monday at 00:30", "@every 14d": "every 2 weeks on Monday at 00:30",
	} {
		if got := words.Of("report", job.Plan{Schedule: schedule, Timezone: "Europe/Berlin", From: from}); got != want {
			t.Errorf("%s: %q, want %q", schedule, got, want)
		}
	}
	if got := words.Of("load", job.Plan{After: []string{"extract"}}); got != "after extract" {
		t.Errorf("after: %q", got)
	}
}

// hashed returns the time of day that H H is for a job.
func hashed(name string) string {
	s, err := job.ParseSchedule(name, job.Plan{Schedule: "H H * * *"})
	if err != nil {
		return err.Error()
	}
	return s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).Format("15:04")
}

// Whatever can be scheduled has words, and they are those of no invalid schedule.
func TestEveryValidExpressionHasWords(t *testing.T) {
	t.Parallel()
	field := func(low, high int) *rapid.Generator[string] {
		number := rapid.IntRange(low, high)
		return rapid.OneOf(
			rapid.Just("*"),
			rapid.Custom(func(t *rapid.T) string {
				return join(rapid.SliceOfNDistinct(number, 1, 8, rapid.ID[int]).Draw(t, "list"))
			}),
			rapid.Custom(func(t *rapid.T) string { return "*/" + join([]int{rapid.IntRange(1, high-low).Draw(t, "step")}) }),
		)
	}
	day := rapid.OneOf(field(1, 28), rapid.SampledFrom([]string{"L", "LW", "3,L-2", "15W,L", "31W"}))
	weekday := rapid.OneOf(field(0, 6), rapid.SampledFrom([]string{"5L", "FRI#2,SUN", "MON#1,MONL"}))
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join([]string{
			field(0, 59).Draw(t, "second"), field(0, 59).Draw(t, "minute"), field(0, 23).Draw(t, "hour"),
			day.Draw(t, "day"), field(1, 12).Draw(t, "month"), weekday.Draw(t, "weekday"),
		}, " ")
		got := words.Of("report", job.Plan{Schedule: text})
		if got == text || got == "" || strings.Contains(got, "  ") || strings.HasSuffix(got, " ") {
			t.Errorf("%s: %q", text, got)
		}
	})
}

func join(list []int) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ",")
}
