package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/migrate/python"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// beatNames are the variables of a beat schedule, and timezoneNames those of its time zone.
var (
	beatNames     = []string{"beat_schedule", "CELERY_BEAT_SCHEDULE", "CELERYBEAT_SCHEDULE", "BEAT_SCHEDULE"}
	timezoneNames = []string{"timezone", "CELERY_TIMEZONE"}
)

type celery struct {
	Result
	zone    string
	hasZone bool          // the program sets zone
	within  time.Duration // beat_cron_starting_deadline, or 0
}

// Celery reads the beat schedules of a Python program: dicts that are assigned to beat_schedule,
// and calls of add_periodic_task. It runs nothing. zone is the time zone of the schedules if the
// program does not set one. If it is empty, UTC is assumed, and a note names what may set another one.
func Celery(text, zone string) Result {
	c := celery{zone: cmp.Or(zone, "UTC")}
	program := python.Parse(text)
	c.settings(program)
	if zone == "" && !c.hasZone {
		c.zoneless(program)
	}
	for _, f := range program.Find(append(beatNames, "add_periodic_task")...) {
		c.found(f)
	}
	return c.Result
}

// settings reads what applies to all entries.
func (c *celery) settings(program python.Program) {
	for _, f := range program.Find(append(timezoneNames, "beat_cron_starting_deadline", "CELERY_BEAT_CRON_STARTING_DEADLINE")...) {
		switch {
		case f.Index != nil || f.Name == "" || f.Mention:
		case strings.HasSuffix(strings.ToLower(f.Name), "deadline"):
			if d, ok := pythonDuration(f.Value); ok && d > 0 {
				c.within = d
			} else if f.Value.Kind != python.None {
				c.note(f.Line, "", "not carried over: %s = %s is not a number of seconds: write catch_up: {within: ...}", f.Name, f.Value.Source)
			}
		case f.Value.Kind == python.Text:
			c.zone, c.hasZone = f.Value.Text, true
		case f.Value.Kind != python.None:
			c.note(f.Line, "", "%s = %s is not a string literal: the schedules are read in %s (--tz)", f.Name, f.Value.Source, c.zone)
		}
	}
}

// zoneless reports what may give the schedules another time zone than UTC.
func (c *celery) zoneless(program python.Program) {
	for _, f := range program.Find("enable_utc", "CELERY_ENABLE_UTC", "config_from_object") {
		isDefault := f.Value.Kind == python.Bool && f.Value.Bool
		switch {
		case f.Mention || f.Index != nil || isDefault:
		case f.Name == "":
			c.note(f.Line, "", "%s: the schedules are read in UTC: if it sets a time zone, import with --tz", f.Value.Source)
		default:
			c.note(f.Line, "", "%s = %s: beat then uses the machine's local time: import with --tz", f.Name, f.Value.Source)
		}
	}
}

func (c *celery) found(f python.Found) {
	switch v := f.Value; {
	case f.Mention:
		c.note(f.Line, "", "not carried over: the effect of %s on the schedule is not understood", v.Source)
	case v.Last() == "add_periodic_task" && v.Kind == python.Call:
		c.periodic(v)
	case f.Name == "":
		c.note(f.Line, "", "not carried over: %s is not understood", v.Source)
	case f.Index != nil && f.Index.Kind == python.Text:
		c.entry(f.Line, f.Index.Text, v)
	case v.Kind != python.Dict || f.Index != nil:
		c.note(f.Line, "", "not carried over: %s = %s is not a dict literal; write it out, or import the file that defines it", f.Name, v.Source)
	default:
		last := map[string]int{}
		for i, key := range v.Keys {
			last[key.Text] = i
		}
		for i, key := range v.Keys {
			if key.Kind == python.Text && last[key.Text] != i {
				c.note(key.Line, key.Text, "not carried over: line %d has the same name, and Python keeps the last one", v.Keys[last[key.Text]].Line)
				continue
			}
			if key.Kind != python.Text {
				c.note(key.Line, "", "not carried over: %s: %s: the name is not a string literal", key.Source, v.Items[i].Source)
				continue
			}
			c.entry(key.Line, key.Text, v.Items[i])
		}
	}
}

// periodic reads app.add_periodic_task(schedule, task.s(...), ...).
func (c *celery) periodic(v python.Value) {
	if len(v.Items) < 2 || v.Starred {
		c.note(v.Line, "", "not carried over: %s: want a schedule and a signature", v.Source)
		return
	}
	signature := v.Items[1]
	task, isSignature := strings.CutSuffix(signature.Text, ".s")
	if !isSignature {
		task, isSignature = strings.CutSuffix(signature.Text, ".si")
	}
	if signature.Kind != python.Call || !isSignature || signature.Starred {
		c.note(v.Line, "", "not carried over: %s is not a signature like task.s(16)", signature.Source)
		return
	}
	t := beatTask{line: v.Line, name: task, task: task, schedule: v.Items[0], args: signature.Items, kwargs: python.DictOf(signature.Args...)}
	for _, a := range v.Args {
		switch {
		case a.Name == "name" && a.Value.Kind == python.Text:
			t.name = a.Value.Text
		case a.Name == "expires":
			t.expires = &a.Value
		default:
			t.dropped = append(t.dropped, a.Name+"="+a.Value.Source)
		}
	}
	t.dropped = append(t.dropped, "the full name of the task: this file calls it "+task)
	c.convert(t)
}

// beatTask is an entry of a schedule.
type beatTask struct {
	line       int
	name, task string
	schedule   python.Value
	args       []python.Value
	kwargs     python.Value // a dict
	expires    *python.Value
	queue      *python.Value
	disabled   bool
	dropped    []string
}

func (c *celery) entry(line int, name string, v python.Value) {
	if v.Kind != python.Dict {
		c.note(line, name, "not carried over: %s is not a dict literal", v.Source)
		return
	}
	t := beatTask{line: line, name: name}
	for i, key := range v.Keys {
		value := v.Items[i]
		switch {
		case key.Kind != python.Text:
			t.dropped = append(t.dropped, key.Source+" "+value.Source)
		case key.Text == "task" && value.Kind == python.Text:
			t.task = value.Text
		case key.Text == "schedule":
			t.schedule = value
		case key.Text == "args" && value.Kind == python.List:
			t.args = value.Items
		case key.Text == "kwargs" && value.Kind == python.Dict:
			t.kwargs = value
		case key.Text == "kwargs" && value.Kind == python.Call && value.Text == "dict" && len(value.Items) == 0:
			t.kwargs = python.DictOf(value.Args...)
		case key.Text == "options" && value.Kind == python.Dict:
			t.options(value)
		case (key.Text == "args" || key.Text == "kwargs" || key.Text == "options") && value.Kind == python.None:
		case key.Text == "relative" && value.Kind == python.Bool && !value.Bool:
		case key.Text == "enabled" && value.Kind == python.Bool:
			t.disabled = !value.Bool
		default:
			t.dropped = append(t.dropped, key.Text+": "+value.Source)
		}
	}
	c.convert(t)
}

func (t *beatTask) options(v python.Value) {
	for i, key := range v.Keys {
		switch {
		case key.Kind == python.Text && key.Text == "expires":
			t.expires = &v.Items[i]
		case key.Kind == python.Text && key.Text == "queue" && v.Items[i].Kind == python.Text:
			t.queue = &v.Items[i]
		default:
			t.dropped = append(t.dropped, fmt.Sprintf("options %s: %s", strings.Trim(key.Source, `"'`), v.Items[i].Source))
		}
	}
}

// convert adds the job of an entry.
func (c *celery) convert(t beatTask) {
	name := UnitName(t.name)
	if t.task == "" {
		c.note(t.line, t.name, "not carried over: its task is not a string literal")
		return
	}
	j := job.Job{
		Name: name, Timezone: c.zone, Overlap: job.OverlapAllow,
		Retry: job.Retry{Attempts: 1}, CatchUp: job.CatchUp{Policy: job.CatchUpLatest},
	}
	if why := beatSchedule(&j, t.schedule); why != "" {
		c.note(t.line, t.name, "not carried over: %s", why)
		return
	}
	if crontab := !strings.HasPrefix(j.Schedule, "@"); crontab && c.within >= time.Minute {
		j.CatchUp.Within = c.within
	} else if crontab && c.within > 0 {
		j.CatchUp.Policy = job.CatchUpNone // a slot that is less than a minute late is not missed
	}
	payload, ok := pythonCall(t.args, t.kwargs, t.queue)
	if !ok {
		c.note(t.line, t.name, "not carried over: its args or kwargs are not literals")
		return
	}
	j.Payload = payload
	if t.expires != nil {
		if d, ok := pythonDuration(*t.expires); ok && d > 0 {
			j.Deadline = d
		} else {
			t.dropped = append(t.dropped, "expires: "+t.expires.Source)
		}
	}
	added := c.add(jobfile.Imported{
		Job: j, Exec: spec.Exec{Args: []string{"python3", "enqueue.py", t.task}}, Line: t.line,
		Comments: []string{fmt.Sprintf("line %d: %s", t.line, clip(t.name))},
	})
	if added == "" {
		return
	}
	if strings.HasPrefix(j.Schedule, "@every") {
		c.note(t.line, added, "%s", fromEpoch(j.Schedule, "the start of beat"))
	}
	if added != t.name {
		c.note(t.line, added, "its name was %s", clip(t.name))
	}
	if t.disabled {
		c.note(t.line, added, "it is disabled, which a job file cannot express: run cronce job pause %s after cronce job apply", added)
	}
	if len(t.dropped) > 0 {
		c.note(t.line, added, "not carried over: %s", strings.Join(t.dropped, ", "))
	}
}

// pythonCall returns the arguments of a call as the payload for enqueue.py or call.py. Nil: it has
// none. It returns false if an argument is not a literal.
func pythonCall(args []python.Value, kwargs python.Value, queue *python.Value) (json.RawMessage, bool) {
	var call []python.Arg
	if len(args) > 0 {
		call = append(call, python.Arg{Name: "args", Value: python.Value{Kind: python.List, Items: args}})
	}
	if len(kwargs.Items) > 0 {
		call = append(call, python.Arg{Name: "kwargs", Value: kwargs})
	}
	if queue != nil {
		call = append(call, python.Arg{Name: "queue", Value: *queue})
	}
	if len(call) == 0 {
		return nil, true
	}
	return python.DictOf(call...).JSON()
}

// pythonDuration reads seconds, or a timedelta.
func pythonDuration(v python.Value) (time.Duration, bool) {
	seconds, ok := v.Number()
	if !ok {
		if v.Kind != python.Call || v.Last() != "timedelta" || v.Starred {
			return 0, false
		}
		units := []string{"days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks"} // in the order of its arguments
		each := map[string]float64{"days": 86400, "seconds": 1, "microseconds": 1e-6, "milliseconds": 1e-3, "minutes": 60, "hours": 3600, "weeks": 604800}
		args := v.Args
		for i, item := range v.Items {
			if i >= len(units) {
				return 0, false
			}
			args = append(args, python.Arg{Name: units[i], Value: item})
		}
		for _, a := range args {
			n, isNumber := a.Value.Number()
			if each[a.Name] == 0 || !isNumber {
				return 0, false
			}
			seconds += n * each[a.Name]
		}
	}
	if seconds < -longest.Seconds() || seconds > longest.Seconds() {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// every sets a schedule of a fixed interval.
func every(j *job.Job, d time.Duration) (why string) {
	if d < time.Second || d%time.Second != 0 {
		return fmt.Sprintf("an interval of %v: want whole seconds, at least one", d)
	}
	j.Schedule, j.Timezone = "@every "+d.String(), ""
	return ""
}

// beatSchedule sets the schedule of an entry. If the schedule has no counterpart, it returns why.
func beatSchedule(j *job.Job, v python.Value) (why string) {
	if d, ok := pythonDuration(v); ok {
		return every(j, d)
	}
	if v.Kind != python.Call || v.Starred {
		return fmt.Sprintf("its schedule %s is not a literal", v.Source)
	}
	switch v.Last() {
	case "schedule":
		run, given := v.Args.Get("run_every")
		if len(v.Items) == 1 {
			run, given = v.Items[0], true
		}
		if d, ok := pythonDuration(run); given && ok && len(v.Args)+len(v.Items) == 1 {
			return every(j, d)
		}
	case "crontab":
		return celeryCrontab(j, v)
	case "solar":
		return "a solar schedule has no counterpart: write a time of the day, or let a program that computes sunrise and sunset run cronce job trigger"
	}
	return fmt.Sprintf("its schedule %s is not understood", v.Source)
}
