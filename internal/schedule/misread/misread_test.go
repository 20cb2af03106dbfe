package misread_test

import (
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/schedule/misread"
	"github.com/cronce-io/cronce/job"
)

func TestSchedulesThatAreMisread(t *testing.T) {
	t.Parallel()
	for schedule, want := range map[string]string{ // empty: nothing is said
		"0 8 1-7 * 1":         `day of month 1-7 and day of week 1: a date has to match either of them, not both; for both, write * as the day of week and exclude: ["* * * * 0,2,3,4,5,6"]`,
		"0 14 */14 * 3":       "either of them",
		"0 0 L * FRI#2":       "either of them, not both",
		"*/45 * * * *":        "minute */45: the step begins anew with each hour, so the last interval is shorter; for equal ones write @every 45m, with from",
		"0 */5 * * *":         "hour */5: the step begins anew with each day",
		"0 0 */2 * *":         "day of month */2: the step begins anew with each month, so the last interval is shorter; for equal ones write @every 2d, with from",
		"0 0 1 */5 *":         "month */5: the step begins anew with each year",
		"0 9 * * MON/2":       "day of week MON/2: it is each such day of one week, from that day to Saturday; for every second week write @every 2w, with from",
		"* 9 * * *":           "it runs in each of the sixty minutes of hour 9; for once an hour write a minute, like 0 9",
		"0 0 * * 1 2":         "six fields begin with the second: the month is 1",
		"@every 7m":           "its times of day differ from day to day",
		"@every 36h":          "its times of day differ from day to day",
		"@every 48h":          "",
		"@every 90s":          "",
		"@every 15m":          "",
		"*/15 * * * *":        "",
		"0 */6 * * *":         "",
		"* 9-17 * * *":        "",
		"* * * * *":           "",
		"0 7 * * MON-FRI":     "",
		"0 0 ? * MON":         "",
		"0 30 * * * *":        "",
		"*/10 * 9-17 * * MON": "",
		"0 0 1 1 *":           "",
		"@weekly":             "",
		"none":                "",
		"61 * * * *":          "",
	} {
		got := strings.Join(misread.Of("report", job.Plan{Schedule: schedule}), "\n")
		if !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", schedule, got, want)
		}
	}
}
