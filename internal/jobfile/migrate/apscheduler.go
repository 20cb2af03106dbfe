package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/migrate/python"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

type apscheduler struct {
	Result

	// zone is the time zone of the scheduler, and hasZone is true if the program sets it. machine is
	// the time zone of the machine, and machineKnown is true if the user named it.
	zone, machine         string
	hasZone, machineKnown bool

	defaults apDefaults
}

// APScheduler reads the jobs of a Python program: calls of add_job and scheduled_job (version 3)
// and add_schedule (version 4), lists of dicts that are assigned to JOBS, and the time zone and
// job_defaults of schedulers and configuration dicts. It runs nothing. zone is the time zone of the
// machine, in which APScheduler reads schedules that name none. If it is empty, UTC is assumed, and
// each job that depends on it gets a note.
func APScheduler(text, zone string) Result {
	a := apscheduler{zone: cmp.Or(zone, "UTC"), machine: cmp.Or(zone, "UTC"), machineKnown: zone != "", defaults: apDefaults3}
	program := python.Parse(text)
	schedulers := []string{"BlockingScheduler", "BackgroundScheduler", "AsyncIOScheduler", "GeventScheduler", "TornadoScheduler", "TwistedScheduler", "QtScheduler", "APScheduler", "AsyncScheduler", "Scheduler", "configure"}
	for _, f := range program.Find(schedulers...) {
		if f.Value.Kind == python.Call && f.Name == "" {
			a.configured(program, f.Value)
		}
	}
	// An assignment that is an argument of a call is not a setting of its own.
	var begin, end []int // the lines of the calls, in ascending order; end is the last line of all calls so far
	for _, c := range program.Find(append(schedulers, "add_job", "scheduled_job", "add_schedule", "CronTrigger", "IntervalTrigger", "DateTrigger", "from_crontab", "JOBS")...) {
		if !c.Mention {
			begin, end = append(begin, c.Line), append(end, max(c.Value.End, last(end)))
		}
	}
	for _, f := range program.Find("SCHEDULER_TIMEZONE", "SCHEDULER_JOB_DEFAULTS", "job_defaults", "timezone") {
		before, _ := slices.BinarySearch(begin, f.Line+1) // how many calls begin at the line or before
		inside := f.Line <= last(end[:before])
		if f.Name != "" && f.Index == nil && !f.Mention && !inside {
			a.setting(strings.ToLower(strings.TrimPrefix(f.Name, "SCHEDULER_")), f.Value, false)
		}
	}
	for _, key := range []string{"timezone", "job_defaults.coalesce", "job_defaults.max_instances", "job_defaults.misfire_grace_time"} {
		for _, f := range program.Find("apscheduler." + key) {
			a.setting(strings.TrimPrefix(key, "job_defaults."), f.Value, true)
		}
	}
	for _, f := range program.Find("add_job", "scheduled_job", "add_schedule", "JOBS") {
		a.found(f)
	}
	return a.Result
}

// last returns the last line, or 0.
func last(lines []int) int {
	if len(lines) == 0 {
		return 0
	}
	return lines[len(lines)-1]
}

// configured reads the arguments of a scheduler.
func (a *apscheduler) configured(program python.Program, v python.Value) {
	for _, arg := range v.Args {
		switch arg.Name {
		case "timezone", "job_defaults":
			value := arg.Value
			if value.Kind == python.Name { // a variable
				for _, f := range program.Find(value.Text) {
					if f.Name == value.Text && f.Index == nil && !f.Mention && f.Line < v.Line {
						value = f.Value
					}
				}
			}
			a.setting(arg.Name, value, false)
		case "jobstores":
			a.note(arg.Value.Line, "", "jobs that are only in a job store (%s) are not imported: list them with print_jobs()", arg.Value.Source)
		}
	}
	if v.Starred {
		a.note(v.Line, "", "%s: its * and ** arguments are not known", v.Source)
	}
}

// setting applies a setting of a scheduler. With asText, numbers and booleans may be strings, as in a
// configuration dict.
func (a *apscheduler) setting(name string, v python.Value, asText bool) {
	if asText && v.Kind == python.Text && name != "timezone" {
		v = python.Literal(v)
	}
	n, isInt := v.Int()
	switch {
	case name == "timezone":
		if zone, ok := zoneOf(v); ok {
			a.zone, a.hasZone = zone, true
			return
		}
	case name == "job_defaults" && v.Kind == python.Dict:
		for i, key := range v.Keys {
			a.setting(key.Text, v.Items[i], asText)
		}
		return
	case name == "coalesce" && v.Kind == python.Bool:
		a.defaults.coalesce = v.Bool
		return
	case name == "max_instances" && isInt && n > 0:
		a.defaults.maxInstances = n
		return
	case name == "misfire_grace_time":
		if a.defaults.setGrace(v) {
			return
		}
	}
	a.note(v.Line, "", "not carried over: %s = %s", name, v.Source)
}

// zoneOf reads a time zone: a text, or ZoneInfo("..."), pytz.timezone("..."), utc.
func zoneOf(v python.Value) (string, bool) {
	switch {
	case v.Kind == python.Text:
		return v.Text, true
	case v.Kind == python.Call && slices.Contains([]string{"ZoneInfo", "timezone", "gettz"}, v.Last()) && len(v.Items) == 1 && v.Items[0].Kind == python.Text:
		return v.Items[0].Text, true
	case v.Kind == python.Name && slices.Contains([]string{"utc", "UTC", "pytz.utc", "pytz.UTC", "timezone.utc", "datetime.timezone.utc", "datetime.UTC"}, v.Text):
		return "UTC", true
	}
	return "", false
}

func (a *apscheduler) found(f python.Found) {
	v := f.Value
	switch {
	case f.Mention:
		a.note(f.Line, "", "not carried over: %s is not understood", v.Source)
	case f.Name == "JOBS" && f.Index == nil && v.Kind == python.List:
		for _, item := range v.Items {
			a.dict(item)
		}
	case f.Name == "JOBS":
		a.note(f.Line, "", "not carried over: %s = %s is not a list of dict literals", f.Name, v.Source)
	case f.Name != "" || v.Kind != python.Call:
		a.note(f.Line, "", "not carried over: %s is not understood", v.Source)
	default:
		a.call(f)
	}
}

// dict reads an element of JOBS, the form of Flask-APScheduler.
func (a *apscheduler) dict(v python.Value) {
	if v.Kind != python.Dict {
		a.note(v.Line, "", "not carried over: %s is not a dict literal", v.Source)
		return
	}
	j := apJob{line: v.Line}
	for i, key := range v.Keys {
		if key.Kind != python.Text {
			j.dropped = append(j.dropped, key.Source+" "+v.Items[i].Source)
			continue
		}
		j.args.Set(key.Text, v.Items[i])
	}
	a.convert(j)
}

// call reads add_job(...), scheduled_job(...) or add_schedule(...).
func (a *apscheduler) call(f python.Found) {
	v := f.Value
	j := apJob{line: v.Line}
	order := []string{"func", "trigger", "args", "kwargs", "id", "name"}
	switch v.Last() {
	case "scheduled_job":
		order = []string{"trigger", "args", "kwargs", "id", "name"}
		if f.Decorates != "" {
			j.args.Set("func", python.Value{Kind: python.Name, Text: f.Decorates, Source: f.Decorates})
		}
	case "add_schedule":
		order, j.version4 = []string{"func", "trigger"}, true
	}
	for i, item := range v.Items {
		if i < len(order) {
			j.args.Set(order[i], item)
		} else {
			j.dropped = append(j.dropped, item.Source)
		}
	}
	for _, arg := range v.Args {
		j.args.Set(arg.Name, arg.Value)
	}
	if v.Starred {
		j.dropped = append(j.dropped, "its arguments with * or **")
	}
	a.convert(j)
}

// apJob is a job as its call or its dict describes it.
type apJob struct {
	line    int
	args    python.Arguments // that were not read yet
	dropped []string

	version4 bool // add_schedule adds the job
}

// pop removes an argument and returns it. It returns false if there is no such argument, or if its
// value is None.
func (j *apJob) pop(name string) (python.Value, bool) {
	v, ok := j.args.Get(name)
	j.args = slices.DeleteFunc(j.args, func(a python.Arg) bool { return a.Name == name })
	return v, ok && v.Kind != python.None
}

// rest returns the arguments that are not carried over, except the given ones.
func (j *apJob) rest(except ...string) (texts []string) {
	for _, a := range j.args {
		if a.Value.Kind != python.None && !slices.Contains(except, a.Name) {
			texts = append(texts, a.Name+"="+a.Value.Source)
		}
	}
	return texts
}

func (a *apscheduler) convert(p apJob) {
	function, _ := p.pop("func")
	id, _ := p.pop("id")
	label, _ := p.pop("name")
	called := function.Text
	if function.Source == "" {
		a.note(p.line, "", "not carried over: %s", strings.Join(append([]string{"its function is not given here"}, p.dropped...), ", "))
		return
	}
	if function.Kind != python.Text && function.Kind != python.Name {
		a.note(p.line, "", "not carried over: its function %s has no name", function.Source)
		return
	}
	was := called
	logged := called[strings.LastIndex(called, ":")+1:]
	if label.Kind == python.Text && label.Text != "" {
		logged = label.Text
	}
	for _, v := range []python.Value{label, id} {
		if v.Kind == python.Text && v.Text != "" {
			was = v.Text
		}
	}
	j := job.Job{Name: UnitName(strings.ReplaceAll(was, ":", ".")), Timezone: a.zone, Retry: job.Retry{Attempts: 1}}
	if why := a.trigger(&j, &p); why != "" {
		a.note(p.line, was, "not carried over: %s", why)
		return
	}
	payload, ok := a.arguments(&p)
	if !ok {
		a.note(p.line, was, "not carried over: its args or kwargs are not literals")
		return
	}
	j.Payload = payload
	a.policies(&j, &p)
	held, _ := p.pop("paused")
	paused := held.Kind == python.Bool && held.Bool
	p.dropped = append(p.dropped, p.rest("replace_existing", "jobstore", "executor", "conflict_policy")...)
	if v, given := p.args.Get("next_run_time"); given && v.Kind == python.None {
		p.dropped = append(p.dropped, "next_run_time=None: it is paused, which a job file cannot express: run cronce job pause "+j.Name)
	}
	if paused {
		p.dropped = append(p.dropped, "paused=True, which a job file cannot express: run cronce job pause "+j.Name)
	}
	if function.Kind == python.Name {
		p.dropped = append(p.dropped, "the module of its function: write it before "+called+" in the action, as in module:"+called)
	}
	comments := []string{fmt.Sprintf("line %d: %s", p.line, clip(was))}
	if logged != was {
		comments = append(comments, "APScheduler logs it as "+clip(logged))
	}
	added := a.add(jobfile.Imported{Job: j, Exec: spec.Exec{Args: []string{"python3", "call.py", called}}, Line: p.line, Comments: comments})
	if added == "" {
		return
	}
	if strings.HasPrefix(j.Schedule, "@every") {
		switch d, err := time.ParseDuration(strings.TrimPrefix(j.Schedule, "@every ")); {
		case err != nil || j.From.IsZero():
			a.note(p.line, added, "%s", fromEpoch(j.Schedule, "the start of the scheduler"))
		case j.From.Unix()%int64(d/time.Second) != 0:
			a.note(p.line, added, "%s", fromEpoch(j.Schedule, "its beginning"))
		}
	}
	if added != was {
		a.note(p.line, added, "its name was %s", clip(was))
	}
	if len(p.dropped) > 0 {
		a.note(p.line, added, "not carried over: %s", strings.Join(p.dropped, "; "))
	}
}

// arguments returns the payload for call.py.
func (a *apscheduler) arguments(p *apJob) ([]byte, bool) {
	args, _ := p.pop("args")
	kwargs, _ := p.pop("kwargs")
	if args.Source != "" && args.Kind != python.List || kwargs.Source != "" && kwargs.Kind != python.Dict {
		return nil, false
	}
	return pythonCall(args.Items, kwargs, nil)
}

// apDefaults are the job_defaults of a scheduler.
type apDefaults struct {
	coalesce     bool
	grace        time.Duration // negative: unlimited
	given        bool          // whether the program sets grace
	maxInstances int
}

// apDefaults3 are the defaults of version 3, and apDefaults4 those of add_schedule in version 4.
var (
	apDefaults3 = apDefaults{coalesce: true, grace: time.Second, maxInstances: 1}
	apDefaults4 = apDefaults{coalesce: true, grace: -1, maxInstances: 1}
)

// setGrace sets how late a run may start: v is a number of seconds, a timedelta, or None. It returns
// false if v is something else, or less than a second.
func (d *apDefaults) setGrace(v python.Value) bool {
	if v.Kind == python.None {
		d.grace, d.given = -1, true
		return true
	}
	grace, ok := pythonDuration(v)
	if !ok || grace < time.Second {
		return false
	}
	d.grace, d.given = grace, true
	return true
}

// policies sets the overlap and catch-up policies, the deadline, and the spread of a max_jitter.
func (a *apscheduler) policies(j *job.Job, p *apJob) {
	d := a.defaults
	if p.version4 {
		d = apDefaults4
	}
	v, given := p.args.Get("misfire_grace_time") // None is unlimited
	p.pop("misfire_grace_time")
	if given && !d.setGrace(v) {
		p.dropped = append(p.dropped, "misfire_grace_time="+v.Source)
	}
	if v, ok := p.pop("coalesce"); ok {
		switch {
		case v.Kind == python.Bool:
			d.coalesce = v.Bool
		case v.Last() == "latest" || v.Last() == "all": // of CoalescePolicy
			d.coalesce = v.Last() == "latest"
		default:
			p.dropped = append(p.dropped, "coalesce="+v.Source+": the newest missed run is caught up")
		}
	}
	if v, ok := p.pop("max_jitter"); ok {
		p.jitter(j, "max_jitter", v)
	}
	if v, ok := p.pop("max_instances"); ok {
		if n, isInt := v.Int(); isInt && n > 0 {
			d.maxInstances = n
		} else {
			p.dropped = append(p.dropped, "max_instances="+v.Source)
		}
	}
	j.Overlap = job.OverlapSkip
	if d.maxInstances > 1 {
		j.Concurrency = d.maxInstances
	}
	const soon = time.Minute // slots that are less late than this are not missed
	switch {
	case d.grace >= 0 && d.grace < soon:
		j.CatchUp.Policy = job.CatchUpNone
	case d.coalesce:
		j.CatchUp.Policy = job.CatchUpLatest
	default:
		j.CatchUp.Policy = job.CatchUpAll
	}
	if d.grace >= soon {
		j.CatchUp.Within = d.grace
	}
	if d.given && d.grace > 0 {
		j.Deadline = d.grace
	}
	if d.given && d.grace < 0 {
		p.dropped = append(p.dropped, "misfire_grace_time=None: runs older than the horizon (24 h) are not caught up")
	}
}
