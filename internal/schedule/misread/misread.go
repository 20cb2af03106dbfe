// Package misread finds valid schedules that mean something else than most of their authors think.
package misread

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/schedule/cron"
	"github.com/cronce-io/cronce/job"
)

// Of returns what the plan means where it is often misread, and how to say what was probably meant. It
// returns nothing for an invalid plan.
func Of(name string, p job.Plan) []string {
	e, err := cron.Parse(name, p.Schedule)
	fields := strings.Fields(p.Schedule)
	switch {
	case err != nil || !p.Scheduled():
		return nil
	case e.Every > 0:
		return ofInterval(e.Every)
	case e.Fields == nil || len(fields) < 5:
		return nil
	}
	var found []string
	if len(fields) == 6 {
		if fields[2] == "*" && fields[3] == "*" && fields[4] != "*" {
			found = append(found, fmt.Sprintf("six fields begin with the second: the month is %s and the hour is any; for a day of the week or a month, write five fields", fields[4]))
		}
	} else {
		fields = append([]string{"0"}, fields...)
	}
	found = append(found, ofSteps(fields)...)
	if isNumbers(fields[2]) && fields[1] == "*" {
		found = append(found, fmt.Sprintf("minute *: it runs in each of the sixty minutes of hour %s; for once an hour write a minute, like 0 %s", fields[2], fields[2]))
	}
	if e.Fields.Either {
		found = append(found, eitherDay(e, fields))
	}
	return found
}

// ofInterval warns of an interval that does not divide a day.
func ofInterval(seconds int64) []string {
	const day = 86400
	if seconds%day == 0 || day%seconds == 0 {
		return nil
	}
	return []string{"the interval does not divide a day, so its times of day differ from day to day"}
}

// eitherDay words that both day fields restrict the dates, and how to say "both".
func eitherDay(e cron.Expression, fields []string) string {
	text := fmt.Sprintf("day of month %s and day of week %s: a date has to match either of them, not both", fields[3], fields[5])
	if e.Fields.Nth != 0 {
		return text
	}
	var others []string
	for day := range 7 {
		if e.Fields.Weekday>>day&1 == 0 {
			others = append(others, strconv.Itoa(day))
		}
	}
	if len(others) == 0 {
		return text
	}
	return fmt.Sprintf("%s; for both, write * as the day of week and exclude: [\"* * * * %s\"]", text, strings.Join(others, ","))
}

var (
	starStep  = regexp.MustCompile(`^[*?]/0*([0-9]+)$`)
	valueStep = regexp.MustCompile(`^[A-Za-z0-9]+/[0-9]+$`)
)

// ofSteps warns of steps that begin anew with each minute, hour, day, month or week.
func ofSteps(fields []string) (found []string) {
	for i, field := range []struct {
		name, whole string
		size        int
	}{{"second", "minute", 60}, {"minute", "hour", 60}, {"hour", "day", 24}, {"day of month", "month", 0}, {"month", "year", 12}, {"day of week", "week", 0}} {
		for item := range strings.SplitSeq(fields[i], ",") {
			if m := starStep.FindStringSubmatch(item); m != nil {
				n, err := strconv.Atoi(m[1])
				if err == nil && n > 1 && (field.size == 0 || field.size%n != 0) {
					found = append(found, fmt.Sprintf("%s %s: the step begins anew with each %s, so the last interval is shorter%s", field.name, item, field.whole, instead(field.name, n)))
				}
			}
			if field.name == "day of week" && valueStep.MatchString(item) {
				found = append(found, fmt.Sprintf("day of week %s: it is each such day of one week, from that day to Saturday; for every second week write @every 2w, with from", item))
			}
		}
	}
	return found
}

// instead says what has equal intervals.
func instead(field string, n int) string {
	if unit := map[string]string{"second": "s", "minute": "m", "hour": "h", "day of month": "d"}[field]; unit != "" {
		return fmt.Sprintf("; for equal ones write @every %d%s, with from", n, unit)
	}
	return ""
}

// isNumbers reports whether a field is a list of numbers.
func isNumbers(field string) bool {
	return !slices.ContainsFunc(strings.Split(field, ","), func(s string) bool { _, err := strconv.Atoi(s); return err != nil })
}
