package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
)

// calendarWords are the short forms of calendar expressions.
var calendarWords = map[string]string{
	"minutely": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "monthly": "*-*-01 00:00:00",
	"weekly": "Mon *-*-* 00:00:00", "yearly": "*-01-01 00:00:00", "annually": "*-01-01 00:00:00", "anually": "*-01-01 00:00:00",
	"quarterly": "*-01,04,07,10-01 00:00:00", "semiannually": "*-01,07-01 00:00:00", "semi-annually": "*-01,07-01 00:00:00", "biannually": "*-01,07-01 00:00:00", "bi-annually": "*-01,07-01 00:00:00",
}

// systemdFields are the fields in the order of a cron expression with seconds, without the day of the
// week.
var systemdFields = []calendarField{
	{"second", 0, 59}, {"minute", 0, 59}, {"hour", 0, 23}, {"day", 1, 31}, {"month", 1, 12},
}

var systemdYear = calendarField{"year", 1970, 2199}

// onCalendar sets the schedule of a calendar expression, in zone unless it names one. All parts of
// it must match. A wall time in a gap has no run, and one that occurs twice runs at the first
// occurrence.
func onCalendar(j *job.Job, text, zone string) error {
	j.Timezone, j.DSTGap, j.DSTOverlap = zone, job.GapSkip, job.RepeatFirst
	parts := strings.Fields(text)
	if n := len(parts); n > 1 && isZone(parts[n-1]) {
		j.Timezone, parts = parts[n-1], parts[:n-1]
	}
	if len(parts) == 1 {
		if long, known := calendarWords[strings.ToLower(parts[0])]; known {
			parts = strings.Fields(long)
		}
	}
	weekday := "*"
	if len(parts) > 0 {
		if set, ok := weekdaysOf(parts[0]); ok {
			weekday = calendarField{"day of week", 0, 6}.field(set)
			parts = parts[1:]
		}
	}
	date, clock := "*-*-*", "00:00:00"
	for i, part := range parts {
		switch {
		case strings.Contains(part, ":") && i == len(parts)-1:
			clock = part
		case strings.Contains(part, "-") && i == 0 && !strings.Contains(part, ":"):
			date = part
		default:
			return fmt.Errorf("%q is not understood", clip(text))
		}
	}
	if len(parts) == 0 && weekday == "*" {
		return fmt.Errorf("%q is not understood", clip(text))
	}
	month, day, err := calendarDate(j, date)
	if err != nil {
		return err
	}
	times := strings.Split(clock, ":")
	if len(times) == 2 {
		times = append(times, "0")
	}
	if len(times) != 3 {
		return fmt.Errorf("%q is not a time", clip(clock))
	}
	var fields []string
	for i, text := range []string{times[2], times[1], times[0], day, month} {
		f := systemdFields[i]
		if strings.HasPrefix(text, "L") {
			fields = append(fields, text) // of daysFromEnd
			continue
		}
		set, err := f.systemd(text)
		if err != nil {
			return err
		}
		fields = append(fields, f.field(set))
	}
	fields = append(fields, weekday)
	if fields[2] == "*" && j.Timezone != "UTC" {
		fields[2] = "0-23" // with a field that begins with *, the job would run twice in an hour that occurs twice
	}
	if fields[0] == "0" {
		fields = fields[1:]
	}
	if why := calendar(j, fields); why != "" {
		return fmt.Errorf("%s", why)
	}
	return nil
}

// isZone reports whether a word, the last one of a schedule, is a time zone.
func isZone(word string) bool {
	_, err := time.LoadLocation(word)
	_, isDay := weekdayOf(word)
	return err == nil && !isDay && !strings.ContainsAny(word[:1], "0123456789*")
}

// weekdaysOf reads "Mon", "Mon,Wed", "Mon..Fri" or, as older versions write it, "Mon-Fri". Sunday is 0.
func weekdaysOf(text string) (set []int, ok bool) {
	for part := range strings.SplitSeq(strings.TrimSuffix(text, ","), ",") {
		first, last, isRange := strings.Cut(strings.Replace(part, "-", "..", 1), "..")
		from, ok := weekdayOf(first)
		to := from
		if isRange && ok {
			to, ok = weekdayOf(last)
		}
		if !ok || to < from {
			return nil, false
		}
		for n := from; n <= to; n++ {
			set = append(set, n%7)
		}
	}
	return set, len(set) > 0
}

// weekdayOf returns the number of a day, from Monday, 1, to Sunday, 7.
func weekdayOf(text string) (int, bool) {
	for n, name := range []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"} {
		if lower := strings.ToLower(text); lower == name || lower == name[:3] {
			return n + 1, true
		}
	}
	return 0, false
}

// calendarDate splits "2027-01-01", "*-*-01..07" or "10-15", and returns the month and the day. A
// year bounds the job.
func calendarDate(j *job.Job, text string) (month, day string, err error) {
	text, fromEnd, isFromEnd := strings.Cut(text, "~")
	if isFromEnd {
		if day, err = daysFromEnd(fromEnd); err != nil {
			return "", "", err
		}
		text += "-" + day
	}
	parts := strings.SplitN(text, "-", 3)
	if len(parts) == 2 {
		parts = append([]string{"*"}, parts...)
	}
	if len(parts) != 3 {
		return "", "", fmt.Errorf("%q is not a date", clip(text))
	}
	if parts[0] != "*" {
		years, err := systemdYear.systemd(fullYears(parts[0]))
		if err != nil {
			return "", "", err
		}
		slices.Sort(years)
		first, last := years[0], years[len(years)-1]
		zone, err := time.LoadLocation(j.Timezone)
		if err != nil || last-first+1 != len(slices.Compact(years)) {
			return "", "", fmt.Errorf("years %s: want one, or a range", clip(parts[0]))
		}
		j.From, j.Until = time.Date(first, 1, 1, 0, 0, 0, 0, zone).UTC(), time.Date(last+1, 1, 1, 0, 0, 0, 0, zone).UTC()
	}
	return parts[1], parts[2], nil
}

// daysFromEnd returns a field of cron for the days after "~": ~01 is the last day of the month, and ~07/1
// are the last seven.
func daysFromEnd(text string) (string, error) {
	var days []string
	for part := range strings.SplitSeq(text, ",") {
		from, by, stepped := strings.Cut(part, "/")
		n, ok := systemdFields[3].number(from)
		step := n
		if stepped && ok {
			step, ok = systemdFields[3].number(by)
		}
		if !ok {
			return "", fmt.Errorf("day %q: want a number of days from the end of the month after ~, like ~01 or ~07/1", clip(part))
		}
		for ; n > 0; n -= step {
			day := "L"
			if n > 1 {
				day = fmt.Sprintf("L-%d", n-1)
			}
			days = append(days, day)
		}
	}
	return strings.Join(days, ","), nil
}

// yearOrStep matches a year, or a step of years.
var yearOrStep = regexp.MustCompile(`/?[0-9]+`)

// fullYears replaces years of one or two digits: 70 to 99 are in the last century, 0 to 69 in this one.
func fullYears(text string) string {
	return yearOrStep.ReplaceAllStringFunc(text, func(word string) string {
		n, err := strconv.Atoi(word)
		switch {
		case err != nil || n > 99: // a step, or a whole year
			return word
		case n >= 70:
			return strconv.Itoa(1900 + n)
		}
		return strconv.Itoa(2000 + n)
	})
}

// systemd reads "*", "5", "0/15", "1..5", "1..5/2" and lists of these without "*". As systemd does, it
// refuses a step that leads from the start out of the field at once.
func (f calendarField) systemd(text string) (set []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		some, err := f.ascending(strings.Replace(part, "..", "-", 1))
		isAlone := len(some) == 1 && strings.Contains(part, "/") && !strings.Contains(part, "..")
		if err != nil || isAlone || strings.Contains(part, "-") || text != "*" && strings.Contains(part, "*") {
			return nil, fmt.Errorf("%s %q: want whole numbers of %d to %d, like 5, 1..5 or 0/15", f.name, clip(part), f.low, f.high)
		}
		set = append(set, some...)
	}
	return set, nil
}
