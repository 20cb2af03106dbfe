package cron

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/suggest"
)

const maxExpression = 1024

var descriptors = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// Fields is a cron expression as one set of numbers for each field. Bit n is set if the field
// matches n.
type Fields struct {
	Second, Minute, Hour uint64
	Day, Month, Weekday  uint64
	RelativeDays

	// Either is true if both day fields restrict the dates. A date then has to match only one
	// of them, as in every cron.
	Either bool
}

// Everything matches all wall times.
var Everything = Fields{
	Second: 1<<60 - 1, Minute: 1<<60 - 1, Hour: 1<<24 - 1,
	Day: 1<<32 - 2, Month: 1<<13 - 2, Weekday: 1<<7 - 1,
}

// weekdays returns the weekdays on which a date matches the expression, if its month has that many days.
// Bit 0 is Sunday.
func (f Fields) weekdays(length, month, day int) uint8 {
	if f.Month>>month&1 == 0 {
		return 0
	}
	dom, dow := f.onDay(length, day), uint8(f.Weekday)|f.onNth(length, day)
	if f.Day>>day&1 == 1 {
		dom = wholeWeek
	}
	if f.Either {
		return dom | dow
	}
	return dom & dow
}

func (f Fields) String() string {
	return fmt.Sprintf("%x.%x.%x.%x.%x.%x.%x.%t", f.Second, f.Minute, f.Hour, f.Day, f.Month, f.Weekday, f.RelativeDays, f.Either)
}

// Expression is the text of a schedule, parsed. One of Every, Days, At and Fields is set.
type Expression struct {
	Every  int64  // of @every: seconds between two slots
	Days   int64  // of @every 3d or @every 2w: days between two slots
	At     *int64 // of @at: seconds since 1970
	Fields *Fields

	// elapsed is true if the hour field begins with * or ?. Then the job follows elapsed time:
	// every instant at which the clock matches is a slot, whatever the policies for clock
	// changes are.
	elapsed bool
}

// Parse reads the text of a schedule. job is the name that H hashes.
func Parse(job, text string) (e Expression, err error) {
	if err := checkText(text); err != nil {
		return e, err
	}
	text = strings.TrimSpace(text)
	word, rest, _ := strings.Cut(text, " ")
	switch rest = strings.TrimSpace(rest); {
	case text == "":
		return e, errors.New("it is empty: want a schedule like \"0 7 * * MON-FRI\", @daily or \"@every 90s\"; after or on, which start the job instead; or \"none\", which starts it only when triggered")
	case word == "@every":
		e.Every, e.Days, err = parseEvery(rest)
		return e, err
	case word == "@at":
		at, err := parseAt(rest)
		return Expression{At: &at}, err
	case descriptors[text] != "":
		text = descriptors[text]
	case strings.HasPrefix(text, "@"):
		return e, unknownDescriptor(text)
	case strings.HasPrefix(text, "cron("):
		return e, errors.New("it is an expression of AWS, which counts Sunday as 1 and has a year at the end: want five fields with Sunday as 0, like \"0 7 * * MON-FRI\"")
	case strings.HasPrefix(text, "rate("):
		return e, errors.New("it is an expression of AWS: want an interval like \"@every 5m\"")
	}
	fields, elapsed, err := parseFields(job, text, "0")
	return Expression{Fields: &fields, elapsed: elapsed}, err
}

func unknownDescriptor(text string) error {
	if near := suggest.Nearest(text, slices.Collect(maps.Keys(descriptors))); near != "" {
		return fmt.Errorf("unknown word; did you mean %s?", near)
	}
	return errors.New("unknown word: want @yearly, @monthly, @weekly, @daily, @hourly, @every 90s, @at 2027-01-01T00:00:00Z, or none for a job that runs only when it is triggered")
}

// checkText refuses a text that is too long, has bytes that no expression may have, or begins with a
// time zone. It runs before any other code reads the text.
func checkText(text string) error {
	if len(text) > maxExpression {
		return fmt.Errorf("%d bytes, at most %d", len(text), maxExpression)
	}
	for i := range len(text) {
		if c := text[i]; c != '\t' && (c < ' ' || c > '~') {
			return fmt.Errorf("byte %d is %q: only printable ASCII, spaces and tabs", i, text[i:i+1])
		}
	}
	for _, prefix := range []string{"TZ=", "CRON_TZ="} {
		if zone, ok := strings.CutPrefix(strings.TrimSpace(text), prefix); ok {
			zone, _, _ = strings.Cut(zone, " ")
			return fmt.Errorf("an expression has no time zone; use timezone: %s", zone)
		}
	}
	return nil
}

// parseFields reads five or six cron fields. If there are five, seconds stands for the
// first of six. elapsed reports whether the hour field begins with * or ?.
func parseFields(job, text, seconds string) (set Fields, elapsed bool, err error) {
	fields := strings.Fields(text)
	switch n := len(fields); {
	case n > 5 && isYear(fields[n-1]):
		return Fields{}, false, fmt.Errorf("%d fields, of which the last, %s, looks like a year: an expression has none; use from and until", n, fields[n-1])
	case n == 5:
		fields = append([]string{seconds}, fields...)
	case n != 6:
		return Fields{}, false, fmt.Errorf("%d fields: want 5 (minute, hour, day of month, month, day of week), or 6 with seconds first", len(fields))
	}
	var sets [6]fieldSet
	for i, f := range cronFields {
		if sets[i], err = f.parse(job, fields[i]); err != nil {
			return Fields{}, false, err
		}
	}
	dom, dow := sets[3], sets[5]
	return Fields{
		Second: sets[0].values, Minute: sets[1].values, Hour: sets[2].values,
		Day: dom.values, Month: sets[4].values, Weekday: dow.values,
		RelativeDays: RelativeDays{FromEnd: dom.FromEnd, Nearest: dom.Nearest, Nth: dow.Nth},
		Either:       dom.restricts && dow.restricts,
	}, strings.ContainsRune("*?", rune(fields[2][0])), nil
}

// isYear reports whether the field is a year, as Quartz and AWS have it after the day of week.
func isYear(field string) bool {
	n, ok := number(field)
	return ok && n >= 1970 && n <= 2199
}

// maxDays is the longest interval in days: some ten years.
const maxDays = 3660

// parseEvery reads the interval after @every, which is in days if its unit is the day or the week.
func parseEvery(text string) (seconds, days int64, err error) {
	if count, unit, ok := cutCalendarUnit(text); ok {
		n, ok := number(count)
		if !ok || n < 1 || n*unit > maxDays {
			return 0, 0, fmt.Errorf("%q is not a number of days or weeks, of at most %d days; want @every 3d or @every 2w, without other units", codec.Clip(text), maxDays)
		}
		return 0, int64(n * unit), nil
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("%q is not a duration; want @every 90s, @every 1h30m, @every 3d or @every 2w", codec.Clip(text))
	case d < time.Second:
		return 0, 0, fmt.Errorf("every %v: want at least 1s", d)
	case d%time.Second != 0:
		return 0, 0, fmt.Errorf("every %v: want whole seconds", d)
	}
	return int64(d / time.Second), 0, nil
}

// cutCalendarUnit splits an interval whose unit is the day or the week. unit is in days.
func cutCalendarUnit(text string) (count string, unit int, ok bool) {
	if count, ok = strings.CutSuffix(text, "d"); ok {
		return count, 1, true
	}
	count, ok = strings.CutSuffix(text, "w")
	return count, 7, ok
}

// parseAt reads the instant after @at, and returns it in seconds since 1970.
func parseAt(text string) (int64, error) {
	t, err := codec.ParseInstant(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not an instant; want @at 2027-01-01T00:00:00Z", codec.Clip(text))
	case t.Nanosecond() != 0:
		return 0, fmt.Errorf("instant %s: want whole seconds", text)
	case t.Unix() < FirstInstant || t.Unix() > LastInstant:
		return 0, fmt.Errorf("instant %s: want a year from 1 to 9999 in UTC", text)
	}
	return t.Unix(), nil
}

// nextBit returns the smallest member of set that is at least from, or 64 if there is none.
func nextBit(set uint64, from int) int { return bits.TrailingZeros64(set >> from << from) }
