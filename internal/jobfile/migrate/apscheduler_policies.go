package migrate

import (
	"time"

	"github.com/cronce-io/cronce/internal/jobfile/migrate/python"
	"github.com/cronce-io/cronce/job"
)

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
