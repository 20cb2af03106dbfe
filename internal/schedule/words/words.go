// Package words says in English when a job starts: "Monday to Friday at 07:00" for the
// expression "0 7 * * MON-FRI". It reads the sets of numbers that the scheduler itself uses, so
// the words agree with the slots as long as they describe every set.
package words

import (
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/schedule/cron"
	"github.com/cronce-io/cronce/job"
)

// Of returns when a plan starts the job of this name, without its zone, bounds and exclusions. If
// the plan's schedule is invalid, it returns the schedule as it is.
func Of(name string, p job.Plan) string {
	if p.Schedule == job.OnDemand || len(p.After) > 0 || !p.On.IsZero() {
		return p.Start()
	}
	e, err := cron.Parse(name, p.Schedule)
	switch {
	case err != nil:
		return strings.TrimSpace(p.Schedule)
	case e.Every > 0:
		return "every " + length(time.Duration(e.Every)*time.Second)
	case e.At != nil:
		return "once, on " + time.Unix(*e.At, 0).UTC().Format("2 January 2006 at 15:04:05") + " UTC"
	}
	return sentence(*e.Fields)
}

// This compiles only while cron.Fields has just the fields that sentence puts into words.
var _ = struct {
	Second, Minute, Hour uint64
	Day, Month, Weekday  uint64
	Either               bool
}(cron.Fields{})

// sentence joins the time of day and the dates.
func sentence(s cron.Fields) string {
	times, fixed := timeOfDay(numbers(s.Second), numbers(s.Minute), numbers(s.Hour))
	dates := dates(s)
	switch {
	case fixed && dates == "":
		return "every day " + times
	case fixed:
		return dates + " " + times
	case dates == "":
		return times
	}
	return times + ", " + dates
}

// length writes a duration as a number of its largest whole unit: "90 minutes", "90 seconds". If that
// unit is the second, it writes more than two minutes as "2m30s".
func length(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if d%unit.of == 0 {
			return count(int(d/unit.of), unit.name)
		}
	}
	if d > 2*time.Minute {
		return d.String()
	}
	return count(int(d/time.Second), "second")
}

// count returns "hour" or "3 hours".
func count(n int, unit string) string {
	if n == 1 {
		return unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}
