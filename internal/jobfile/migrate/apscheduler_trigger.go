package migrate

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/jobfile/migrate/python"
	"github.com/cronce-io/cronce/job"
)

// apFields are the fields of a cron trigger, the longest unit first. Monday is 0.
var apFields = []calendarField{
	{"year", 1970, 9999, nil}, {"month", 1, 12, monthNames}, {"day", 1, 31, nil}, {"week", 1, 53, nil},
	{"day_of_week", 0, 6, []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}}, {"hour", 0, 23, nil}, {"minute", 0, 59, nil}, {"second", 0, 59, nil},
}

// trigger sets the schedule of a job, and removes the arguments that it understands. If the
// schedule has no counterpart, it returns why.
func (a *apscheduler) trigger(j *job.Job, p *apJob) (why string) {
	v, ok := p.pop("trigger")
	if !ok {
		return "it has no trigger: it ran once, at the start"
	}
	kind := v.Text
	given := p
	if v.Kind == python.Call {
		given = &apJob{args: slices.Clone(v.Args)}
		if kind = map[string]string{"CronTrigger": "cron", "IntervalTrigger": "interval", "DateTrigger": "date", "from_crontab": "crontab"}[v.Last()]; kind == "" || v.Starred {
			return fmt.Sprintf("its trigger %s is not understood", v.Source)
		}
		if kind == "crontab" && len(v.Items) > 0 {
			given.args.Set("expr", v.Items[0])
		} else if kind == "date" && len(v.Items) == 1 {
			given.args.Set("run_date", v.Items[0])
		} else if len(v.Items) > 0 {
			return fmt.Sprintf("its trigger %s has arguments without a name", v.Source)
		}
	} else if v.Kind != python.Text {
		return fmt.Sprintf("its trigger %s is not a literal", v.Source)
	}
	if why := a.triggerZone(j, given, p, v.Kind == python.Call); why != "" {
		return why
	}
	zone, err := time.LoadLocation(j.Timezone)
	if err != nil {
		return fmt.Sprintf("unknown time zone %q", clip(j.Timezone))
	}
	switch kind {
	case "cron":
		why = apCron(j, given)
	case "crontab":
		expr, _ := given.pop("expr")
		why = apCrontab(j, expr)
		if fields := strings.Fields(expr.Text); len(fields) == 5 && strings.ContainsAny(fields[4], "0123456789") {
			p.dropped = append(p.dropped, "from_crontab reads the weekdays "+clip(fields[4])+" from 0, Monday, in version 3; other versions may differ: write names")
		}
	case "interval":
		why = apInterval(j, given)
	case "date":
		at, _ := given.pop("run_date")
		if named, ok := given.pop("run_time"); ok {
			at = named
		}
		when, ok := pythonTime(at, zone)
		if !ok {
			return fmt.Sprintf("its date %s is not a literal", at.Source)
		}
		j.Schedule, j.Timezone = "@at "+when.UTC().Format(time.RFC3339), ""
	default:
		return fmt.Sprintf("its trigger %q is not understood", clip(kind))
	}
	if why == "" {
		why = apBounds(j, given, zone, p)
	}
	if why == "" && kind == "interval" && !j.From.IsZero() {
		apAnchor(j)
	}
	if strings.HasPrefix(kind, "cron") {
		if j.DSTOverlap = job.RepeatBoth; p.version4 {
			j.DSTGap = job.GapSkip
		}
	}
	if given != p {
		p.dropped = append(p.dropped, given.rest()...)
	}
	return why
}

// triggerZone sets the time zone of a trigger. A trigger that is an object does not have the
// scheduler's time zone, but that of its end_date or start_date if one of them names a zone, or else
// that of the machine.
func (a *apscheduler) triggerZone(j *job.Job, given, p *apJob, isObject bool) (why string) {
	if zone, ok := given.pop("timezone"); ok {
		name, known := zoneOf(zone)
		if !known {
			return fmt.Sprintf("timezone=%s is not understood", zone.Source)
		}
		j.Timezone = name
		return ""
	}
	if isObject {
		j.Timezone = a.machine
		for _, name := range []string{"end_date", "start_date"} {
			date, _ := given.args.Get(name)
			zone, _ := date.Args.Get("tzinfo")
			if name, known := zoneOf(zone); known {
				j.Timezone = name
				return ""
			}
		}
	}
	if !a.machineKnown && (isObject || !a.hasZone) && given.dependsOnZone() {
		p.dropped = append(p.dropped, "the time zone of the machine, which APScheduler uses for this schedule: here the schedule is in UTC, unless you import with --tz")
	}
	return ""
}

// dependsOnZone reports whether a trigger has a date without a time zone, or restricts hours or
// longer units.
func (j *apJob) dependsOnZone() bool {
	elsewhere := time.FixedZone("", 3600)
	for _, a := range j.args {
		v := a.Value
		switch a.Name {
		case "run_date", "run_time", "start_date", "start_time", "end_date", "end_time":
			here, _ := pythonTime(v, time.UTC)
			if there, _ := pythonTime(v, elsewhere); !here.Equal(there) {
				return true
			}
		case "year", "month", "day", "week", "day_of_week", "hour":
			if v.Text != "*" && v.Kind != python.None {
				return true
			}
		case "expr":
			if !strings.HasSuffix(v.Text, " * * * *") {
				return true
			}
		}
	}
	return false
}

// jitter sets the spread of a job: a number of seconds, or a timedelta.
func (p *apJob) jitter(j *job.Job, name string, v python.Value) (why string) {
	d, ok := pythonDuration(v)
	if !ok || d < time.Second {
		return fmt.Sprintf("%s=%s is not a number of seconds", name, v.Source)
	}
	j.Spread = d.Truncate(time.Second)
	p.dropped = append(p.dropped, fmt.Sprintf("%s=%s delays each run by a new random time; with spread, a job always has the same delay", name, v.Source))
	return ""
}

// apBounds reads the arguments of a trigger that are not fields: its beginning, its end and jitter.
func apBounds(j *job.Job, given *apJob, zone *time.Location, p *apJob) (why string) {
	for _, name := range []string{"start_date", "start_time", "end_date", "end_time"} {
		v, ok := given.pop(name)
		if !ok {
			continue
		}
		at, ok := pythonTime(v, zone)
		if !ok {
			return fmt.Sprintf("%s=%s is not a literal", name, v.Source)
		}
		if end := at.Add(time.Second); strings.HasPrefix(name, "end") { // APScheduler may run at the end, and Until is exclusive
			if j.Until.IsZero() || end.Before(j.Until) { // year sets both bounds
				j.Until = end
			}
		} else if at.After(j.From) {
			j.From = at
		}
	}
	if v, ok := given.pop("jitter"); ok {
		return p.jitter(j, "jitter", v)
	}
	return ""
}

// apCron sets the schedule of a cron trigger, whose fields must all match.
func apCron(j *job.Job, p *apJob) (why string) {
	last := -1
	for i, f := range apFields {
		if v, ok := p.args.Get(f.name); ok && v.Kind != python.None {
			last = i
		}
	}
	if last < 0 {
		return "its cron trigger has no fields"
	}
	texts := map[string]string{}
	for i, f := range apFields {
		v, ok := p.pop(f.name)
		text := "*"
		switch {
		case ok && (v.Kind == python.Text || v.Kind == python.Int):
			text = v.Text
		case ok:
			return fmt.Sprintf("%s=%s is not a literal", f.name, v.Source)
		case i > last && f.name != "week" && f.name != "day_of_week":
			text = strconv.Itoa(f.low) // the fields after the last one that is given have their smallest value
		}
		texts[f.name] = strings.ToLower(strings.TrimSpace(text))
	}
	if texts["week"] != "*" {
		return "week=" + clip(texts["week"]) + " has no counterpart: name months and days"
	}
	if m := weekdayPosition.FindStringSubmatch(texts["day"]); m != nil && texts["day_of_week"] == "*" {
		first := 7*int(m[1][0]-'1') + 1
		texts["day"], texts["day_of_week"] = fmt.Sprintf("%d-%d", first, first+6), m[2]
	}
	var fields []string
	for _, name := range []string{"second", "minute", "hour", "day", "month", "day_of_week"} {
		f := apFields[slices.IndexFunc(apFields, func(f calendarField) bool { return f.name == name })]
		var set []int
		for part := range strings.SplitSeq(texts[name], ",") {
			part = strings.TrimSpace(part)
			some, err := f.ascending(part)
			if strings.HasPrefix(part, "last") {
				err = errors.New(fromTheEnd)
			}
			if err != nil {
				return fmt.Sprintf("%s=%q: %v", name, clip(texts[name]), err)
			}
			set = append(set, some...)
		}
		if name == "day_of_week" {
			for i := range set {
				set[i] = (set[i] + 1) % 7
			}
			f.low, f.high = 0, 6
		}
		fields = append(fields, f.field(set))
	}
	if year := texts["year"]; year != "*" {
		zone, err := time.LoadLocation(j.Timezone)
		n, numberErr := strconv.Atoi(year)
		if err != nil || numberErr != nil || n < 1970 || n > 9998 {
			return fmt.Sprintf("year=%q: want one year", clip(year))
		}
		j.From, j.Until = time.Date(n, 1, 1, 0, 0, 0, 0, zone).UTC(), time.Date(n+1, 1, 1, 0, 0, 0, 0, zone).UTC()
	}
	if fields[0] == "0" {
		fields = fields[1:]
	}
	return calendar(j, fields)
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

// weekdayPosition matches a day like "2nd fri", which is the Friday of the dates 8 to 14. It leaves out
// the fifth, which not every month has, and the last, whose dates differ by month.
var weekdayPosition = regexp.MustCompile(`^([1-4])(?:st|nd|rd|th) +(mon|tue|wed|thu|fri|sat|sun)$`)

// apCrontab sets the schedule of CronTrigger.from_crontab. Unlike in cron, its weekdays begin with
// Monday as 0.
func apCrontab(j *job.Job, expr python.Value) (why string) {
	fields := strings.Fields(expr.Text)
	if expr.Kind != python.Text || len(fields) != 5 {
		return fmt.Sprintf("from_crontab(%s): want a text with five fields", expr.Source)
	}
	p := &apJob{}
	for i, name := range []string{"minute", "hour", "day", "month", "day_of_week"} {
		p.args.Set(name, python.Value{Kind: python.Text, Text: fields[i]})
	}
	return apCron(j, p)
}

func apInterval(j *job.Job, p *apJob) (why string) {
	call := python.Value{Kind: python.Call, Text: "timedelta"}
	for _, unit := range []string{"weeks", "days", "hours", "minutes", "seconds", "microseconds"} {
		if v, ok := p.pop(unit); ok {
			call.Args = append(call.Args, python.Arg{Name: unit, Value: v})
		}
	}
	d, ok := pythonDuration(call)
	if !ok || len(call.Args) == 0 {
		return "its interval is not a literal"
	}
	return every(j, d)
}

// apAnchor lets the slots of an interval count from the beginning of the job, if a cron expression
// can say so: they are at the same times of each day, or one in a week, and these are all combinations
// of some hours, minutes and seconds. Otherwise the slots count from 1970.
func apAnchor(j *job.Job) {
	const day = 24 * time.Hour
	d, err := time.ParseDuration(strings.TrimPrefix(j.Schedule, "@every "))
	from := j.From.UTC()
	if err != nil || from.Unix()%int64(d/time.Second) == 0 || day%d != 0 && d != 7*day {
		return
	}
	var hours, minutes, seconds []int
	for at := from; at.Before(from.Add(day)); at = at.Add(d) {
		hours, minutes, seconds = append(hours, at.Hour()), append(minutes, at.Minute()), append(seconds, at.Second())
	}
	fields, combinations := []string{"", "", "", "*", "*", "*"}, 1
	for i, set := range [][]int{seconds, minutes, hours} {
		set = slices.Compact(slices.Sorted(slices.Values(set)))
		fields[i], combinations = calendarField{high: []int{59, 59, 23}[i]}.field(set), combinations*len(set)
	}
	if combinations != len(hours) {
		return
	}
	if d == 7*day {
		fields[5] = strconv.Itoa(int(from.Weekday()))
	}
	if fields[0] == "0" {
		fields = fields[1:]
	}
	j.Schedule, j.Timezone = strings.Join(fields, " "), "Etc/UTC"
}

// pythonTime reads a text like "2027-01-01 07:00:00", datetime(...) or date(...).
func pythonTime(v python.Value, zone *time.Location) (time.Time, bool) {
	switch {
	case v.Kind == python.Text:
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02", "2006-01-02 15:04:05-07:00"} {
			if at, err := time.ParseInLocation(layout, v.Text, zone); err == nil {
				return at.UTC(), at.Nanosecond() == 0
			}
		}
	case v.Kind == python.Call && (v.Last() == "datetime" || v.Last() == "date") && !v.Starred:
		n := []int{0, 1, 1, 0, 0, 0}
		for _, a := range v.Args {
			name, known := zoneOf(a.Value)
			z, err := time.LoadLocation(name)
			if a.Name != "tzinfo" || !known || err != nil {
				return time.Time{}, false
			}
			zone = z
		}
		if len(v.Items) < 3 || len(v.Items) > len(n) {
			return time.Time{}, false
		}
		for i, item := range v.Items {
			var ok bool
			if n[i], ok = item.Int(); !ok {
				return time.Time{}, false
			}
		}
		if n[0] < 1 || n[0] > 9999 {
			return time.Time{}, false
		}
		return time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], 0, zone).UTC(), true
	}
	return time.Time{}, false
}
