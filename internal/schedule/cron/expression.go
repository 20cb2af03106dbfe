package cron

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

const maxExpression = 1024

var Descriptors = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// fieldSet is a cron expression as one set of numbers for each field. Bit n is set if the set
// contains n.
type fieldSet struct {
	second, minute, hour uint64
	dom, month, dow      uint64

	// either is true if both day fields restrict. A date then has to match one of them, as
	// in every cron.
	either bool
}

// weekdays returns the weekdays on which a date matches the expression. Bit 0 is Sunday.
func (f fieldSet) weekdays(month, day int) uint8 {
	const week = 1<<7 - 1
	dom, dow := f.dom>>day&1 == 1, uint8(f.dow)
	switch {
	case f.month>>month&1 == 0:
		return 0
	case f.either && dom:
		return week
	case f.either || dom:
		return dow
	}
	return 0
}

func (f fieldSet) String() string {
	return fmt.Sprintf("%x.%x.%x.%x.%x.%x.%t", f.second, f.minute, f.hour, f.dom, f.month, f.dow, f.either)
}

// CheckText refuses a text that is too long, or has bytes that no expression may have. It runs
// before any other code reads the text.
func CheckText(text string) error {
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

// ParseFields reads five or six cron fields. If there are five, seconds stands for the
// first of six. elapsed reports whether the hour field begins with a star.
func ParseFields(job, text, seconds string) (set fieldSet, elapsed bool, err error) {
	fields := strings.Fields(text)
	switch len(fields) {
	case 5:
		fields = append([]string{seconds}, fields...)
	case 6:
	default:
		return fieldSet{}, false, fmt.Errorf("%d fields: want 5 (minute, hour, day of month, month, day of week), or 6 with seconds first", len(fields))
	}
	var sets [6]uint64
	var restricts [6]bool
	for i, f := range cronFields {
		if sets[i], restricts[i], err = f.parse(job, fields[i]); err != nil {
			return fieldSet{}, false, err
		}
	}
	return fieldSet{
		second: sets[0], minute: sets[1], hour: sets[2], dom: sets[3], month: sets[4], dow: sets[5],
		either: restricts[3] && restricts[5],
	}, strings.ContainsRune("*?", rune(fields[2][0])), nil
}

// ParseEvery reads the duration after @every, and returns it in seconds.
func ParseEvery(text string) (int64, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration; want @every 90s or @every 1h30m", codec.Clip(text))
	case d < time.Second:
		return 0, fmt.Errorf("every %v: want at least 1s", d)
	case d%time.Second != 0:
		return 0, fmt.Errorf("every %v: want whole seconds", d)
	}
	return int64(d / time.Second), nil
}

// ParseAt reads the instant after @at, and returns it in seconds since 1970.
func ParseAt(text string) (int64, error) {
	t, err := time.Parse(time.RFC3339, text)
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

// Sets are the numbers that each field of an expression matches. Bit n is set if the field
// matches n. Either reports that a date has to match only one of the two day fields.
type Sets struct {
	Second, Minute, Hour uint64
	Day, Month, Weekday  uint64
	Either               bool
}

// Sets returns the numbers that the fields match.
func (f fieldSet) Sets() Sets {
	return Sets{f.second, f.minute, f.hour, f.dom, f.month, f.dow, f.either}
}

// Every returns the sets that match all wall times.
func Every() Sets { return everything.Sets() }
