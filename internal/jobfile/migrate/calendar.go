package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// calendarField is a field of a schedule of another program.
type calendarField struct {
	name      string
	low, high int
}

// calendar sets a schedule of five or six fields that must all match.
func calendar(j *job.Job, fields []string) (why string) {
	n := len(fields)
	if fields[n-3] != "*" && fields[n-1] != "*" {
		others, err := otherWeekdays(fields[n-1])
		if err != nil {
			return err.Error()
		}
		if others != "" {
			j.Exclude = append(j.Exclude, "* * * * "+others)
		}
		fields[n-1] = "*"
	}
	j.Schedule = strings.Join(fields, " ")
	return ""
}

// field writes a set of values as a field of a cron expression.
func (f calendarField) field(set []int) string {
	slices.Sort(set)
	set = slices.Compact(set)
	n := len(set)
	if n == f.high-f.low+1 {
		return "*"
	}
	if n > 2 {
		step := set[1] - set[0]
		even := true
		for i := range n - 1 {
			even = even && set[i+1]-set[i] == step
		}
		switch {
		case even && step == 1:
			return fmt.Sprintf("%d-%d", set[0], set[n-1])
		case even && set[0] == f.low && set[n-1]+step > f.high:
			return fmt.Sprintf("*/%d", step)
		case even:
			return fmt.Sprintf("%d-%d/%d", set[0], set[n-1], step)
		}
	}
	return strings.Join(codec.Map(set, strconv.Itoa), ",")
}

// every sets a schedule of a fixed interval. An interval of days needs the date from which it counts, which
// no format has that is read here.
func every(j *job.Job, d time.Duration) (why string) {
	const day = 24 * time.Hour
	if d < time.Second || d%time.Second != 0 {
		return fmt.Sprintf("an interval of %v: want whole seconds, at least one", d)
	}
	if d > day && d%day == 0 {
		return fmt.Sprintf("an interval of %d days: it counts from a start that is not known: write schedule: \"@every %dd\" with from, the first run, so that it keeps the weekday", d/day, d/day)
	}
	j.Schedule, j.Timezone = "@every "+d.String(), ""
	return ""
}

// ascending reads "*", "*/a", "a", "a-b", "a/c" or "a-b/c". A range must not wrap around.
func (f calendarField) ascending(text string) ([]int, error) {
	base, by, stepped := strings.Cut(text, "/")
	first, last, isRange := strings.Cut(base, "-")
	from, ok := f.number(first)
	to, okTo := f.number(last)
	if isRange && (!ok || !okTo || to < from) || stepped && by == "" {
		return nil, fmt.Errorf("%q is not understood", clip(text))
	}
	if stepped && base != "*" && !isRange { // to the end of the field
		text = fmt.Sprintf("%s-%d/%s", base, f.high, by)
	}
	return f.part(text)
}

// part reads "*", "*/2", "3", "8-17" or "8-17/3".
func (f calendarField) part(text string) ([]int, error) {
	base, by, stepped := strings.Cut(text, "/")
	step := 1
	if stepped {
		var err error
		if step, err = strconv.Atoi(by); err != nil || step < 1 {
			return nil, fmt.Errorf("want a step of at least 1 after the slash")
		}
		step = min(step, f.high-f.low+1) // a longer step gives the same values, and could overflow below
	}
	from, to := f.low, f.high
	if base != "*" {
		first, last, isRange := strings.Cut(base, "-")
		var ok, okLast bool
		from, ok = f.number(first)
		if to, okLast = from, true; isRange {
			to, okLast = f.number(last)
		}
		if !ok || !okLast || stepped && !isRange {
			return nil, fmt.Errorf("%q is not understood", text)
		}
	}
	var all []int
	for n := from; n <= to; n += step {
		all = append(all, n)
	}
	return all, nil
}

func (f calendarField) number(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= f.low && n <= f.high
}
