package pages

import (
	"time"

	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/internal/web/pages/preview"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
)

// trySchedule is what the page "Try a schedule" shows.
type trySchedule struct {
	*preview.Preview // nil: the form has no schedule, or a wrong one

	Zone, Gap, Overlap string
	From               time.Time
	Examples           []example
}

type example struct{ Spec, Zone, Name, Says string }

var examples = []example{
	{"0 7 * * MON-FRI", "Europe/Berlin", "", "every working day at seven"},
	{"*/15 9-17 * * *", "America/New_York", "", "every quarter of an hour, in office hours"},
	{"30 2 * * *", "Europe/Berlin", "", "at a time that the clocks skip in spring, and repeat in autumn"},
	{"0 4 1 * *", "UTC", "", "on the first of the month"},
	{"H H(0-5) * * *", "Europe/London", "report", "once a night, at a time that the job's name decides"},
	{"@every 90s", "UTC", "", "without a calendar"},
}

// schedule is the page on which a schedule is tried. It needs no job.
func (s *Site) schedule() shell.Page {
	return shell.Page{Path: "/schedule", Nav: "schedule", File: "schedule.html", Show: func(r *shell.Request) (any, error) {
		d := trySchedule{Examples: examples, From: r.Form.Time("from", r.Prefs.Location)}
		p := job.Plan{Schedule: r.Form.Get("spec"), Timezone: r.Form.Get("zone")}
		d.Gap = r.Form.One("gap", string(job.GapAfter), string(job.GapSkip))
		d.Overlap = r.Form.One("overlap", string(job.RepeatFirst), string(job.RepeatSecond), string(job.RepeatBoth))
		p.DSTGap, p.DSTOverlap = job.GapPolicy(d.Gap), job.RepeatPolicy(d.Overlap)
		if p.Timezone == "" || p.Timezone == shell.ZoneJob {
			p.Timezone = shell.ZoneUTC
			if r.Prefs.Zone != shell.ZoneJob {
				p.Timezone = r.Prefs.Zone // the user has chosen it for all pages
			}
		}
		d.Zone = p.Timezone
		name := r.Form.Get("name")
		if d.From.IsZero() {
			d.From = time.Now()
		}
		if name != "" {
			if err := (job.Job{Name: name, Schedule: job.OnDemand}).Validate(); err != nil {
				r.Form.Wrong("name", "%v", err)
			}
		}
		if p.Schedule == "" || !r.Form.OK() {
			return d, nil
		}
		v, err := preview.New(name, p, d.From)
		if err != nil {
			r.Form.Wrong("spec", "%s", printable.Text(err.Error()))
			return d, nil
		}
		d.Preview = v
		return d, nil
	}}
}
