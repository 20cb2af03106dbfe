package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile/migrate/python"
	"github.com/cronce-io/cronce/job"
)

// calendarField is a field of a schedule of another program.
type calendarField struct {
	name      string
	low, high int
	names     []string // the names of the values from low on, or nil
}

var celeryFields = []calendarField{
	{"minute", 0, 59, nil}, {"hour", 0, 23, nil}, {"day_of_month", 1, 31, nil},
	{"month_of_year", 1, 12, monthNames}, {"day_of_week", 0, 6, dayNames},
}

var (
	monthNames = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	dayNames   = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// celeryCrontab sets the schedule of crontab(...). All its fields must match, both day fields too.
// Only minute and hour may be positional arguments: the order of the others depends on the version of
// Celery.
func celeryCrontab(j *job.Job, v python.Value) (why string) {
	given := map[string]python.Value{}
	for i, item := range v.Items {
		if i > 1 {
			return fmt.Sprintf("%s: only minute and hour have the same position in every version of Celery; name the others", v.Source)
		}
		given[celeryFields[i].name] = item
	}
	for _, a := range v.Args {
		if a.Name == "nowfun" {
			return fmt.Sprintf("nowfun=%s is a clock of its own: leave it out, and import with --tz if it was for a time zone", a.Value.Source)
		}
		if !slices.ContainsFunc(celeryFields, func(f calendarField) bool { return f.name == a.Name }) {
			return fmt.Sprintf("crontab(%s=%s) is not understood", a.Name, a.Value.Source)
		}
		given[a.Name] = a.Value
	}
	var fields []string
	for _, f := range celeryFields {
		value, ok := given[f.name]
		if !ok {
			fields = append(fields, "*")
			continue
		}
		set, err := f.celery(value)
		if err != nil {
			return fmt.Sprintf("%s=%s: %v", f.name, value.Source, err)
		}
		fields = append(fields, f.field(set))
	}
	return calendar(j, fields)
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

// celery reads a value: a number, a text like "*/5,8-17", a list of these, or range(...).
func (f calendarField) celery(v python.Value) ([]int, error) {
	switch v.Kind {
	case python.Text:
		var all []int
		for part := range strings.SplitSeq(v.Text, ",") {
			some, err := f.part(strings.ToLower(strings.TrimSpace(part)))
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return all, nil
	case python.Int:
		n, ok := v.Int()
		if !ok || n < f.low || n > f.high {
			return nil, fmt.Errorf("want %d to %d", f.low, f.high)
		}
		return []int{n}, nil
	case python.List:
		var all []int
		for _, item := range v.Items {
			some, err := f.celery(item)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		if len(all) > 0 {
			return all, nil
		}
	case python.Call:
		if some, ok := rangeOf(v); ok && len(some) > 0 {
			for _, n := range some {
				if n < f.low || n > f.high {
					return nil, fmt.Errorf("want %d to %d", f.low, f.high)
				}
			}
			return some, nil
		}
	}
	return nil, fmt.Errorf("want a number, a text or a list")
}

// rangeOf returns the numbers of range(...).
func rangeOf(v python.Value) (all []int, ok bool) {
	var n []int
	for _, item := range v.Items {
		i, isInt := item.Int()
		if !isInt {
			return nil, false
		}
		n = append(n, i)
	}
	if v.Text != "range" || len(v.Args) > 0 || v.Starred || len(n) < 1 || len(n) > 3 {
		return nil, false
	}
	from, to, step := 0, n[0], 1
	if len(n) > 1 {
		from, to = n[0], n[1]
	}
	if len(n) > 2 {
		step = n[2]
	}
	if step < 1 || from < 0 || to > 1000 {
		return nil, false
	}
	for i := from; i < to; i += step {
		all = append(all, i)
	}
	return all, true
}

// part reads "*", "*/2", "3", "8-17", "fri-mon" or "8-17/3". As in Celery, a range whose end is
// before its beginning wraps around.
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
	if to < from {
		to += f.high - f.low + 1
	}
	for n := from; n <= to; n += step {
		all = append(all, f.low+(n-f.low)%(f.high-f.low+1))
	}
	return all, nil
}

func (f calendarField) number(text string) (int, bool) {
	if len(text) >= 3 {
		if i := slices.Index(f.names, text[:3]); i >= 0 {
			return f.low + i, true
		}
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= f.low && n <= f.high
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
