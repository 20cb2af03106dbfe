// Package words says in English when a job starts: "Monday to Friday at 07:00" for the
// expression "0 7 * * MON-FRI". It reads the sets of numbers that the scheduler itself uses,
// so that the words cannot disagree with the slots.
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
	text := strings.TrimSpace(p.Schedule)
	word, rest, _ := strings.Cut(text, " ")
	switch rest = strings.TrimSpace(rest); {
	case p.Schedule == job.OnDemand, len(p.After) > 0, !p.On.IsZero():
		return p.Start()
	case cron.CheckText(text) != nil:
		return text
	case word == "@every":
		seconds, err := cron.ParseEvery(rest)
		if err != nil {
			return text
		}
		return "every " + length(time.Duration(seconds)*time.Second)
	case word == "@at":
		at, err := cron.ParseAt(rest)
		if err != nil {
			return text
		}
		return "once, on " + time.Unix(at, 0).UTC().Format("2 January 2006 at 15:04:05") + " UTC"
	}
	expression := text
	if cron.Descriptors[text] != "" {
		expression = cron.Descriptors[text]
	}
	set, _, err := cron.ParseFields(name, expression, "0")
	if err != nil {
		return text
	}
	return sentence(set.Sets())
}

// sentence joins the time of day and the dates.
func sentence(s cron.Sets) string {
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

// length writes a duration in its largest whole unit.
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
		return strings.TrimSuffix(d.String(), "0s")
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
