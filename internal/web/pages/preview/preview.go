// Package preview shows what a schedule means: its words, its coming slots, a calendar, and what
// happens at each clock change of the coming year. It is pure: the same arguments give the same
// preview.
package preview

import (
	"time"

	"github.com/cronce-io/cronce/internal/schedule/words"
	"github.com/cronce-io/cronce/job"
)

// Preview of a schedule. Its times are in Zone.
type Preview struct {
	Words string
	Plan  job.Plan // with its defaults
	Zone  *time.Location

	// Coming are the next slots, at most maxComing. Never reports whether there is none.
	Coming []time.Time
	Never  bool

	Changes []Change

	schedule *job.Schedule
	from     time.Time
}

const (
	maxComing = 12
	months    = 3

	// maxInDay bounds the slots of a day that are counted: one in each minute.
	maxInDay = 1440
)

// New returns the preview of a job's plan from a time on. It fails if job.ParseSchedule does.
func New(name string, p job.Plan, from time.Time) (*Preview, error) {
	s, err := job.ParseSchedule(name, p)
	if err != nil {
		return nil, err
	}
	v := &Preview{Words: words.Of(name, p), Plan: p.WithDefaults(), Zone: s.Location(), schedule: s, from: from}
	for at := s.Next(from); !at.IsZero() && len(v.Coming) < maxComing; at = s.Next(at) {
		v.Coming = append(v.Coming, at.In(v.Zone))
	}
	v.Never = len(v.Coming) == 0
	v.Changes, err = changes(name, v.Plan, s, from)
	return v, err
}

// Months returns the calendar. To count the slots of each day takes most of the time of a preview, so
// the playground, which shows no calendar and computes at each key, leaves it out.
func (v *Preview) Months() []Month {
	var all []Month
	local := v.from.In(v.Zone)
	for i := range months {
		all = append(all, newMonth(v.schedule, local.Year(), local.Month()+time.Month(i), v.from))
	}
	return all
}

// Month is a page of a calendar, in the zone of the schedule.
type Month struct {
	First time.Time
	Weeks [][7]Day // from Monday to Sunday
}

// Day is a day of a month. The zero value fills a week before the first day or after the last.
type Day struct {
	Number int
	Date   time.Time // noon

	// Slots counts the coming slots of the day, up to maxInDay; More reports whether there are
	// more. Times are the first of them.
	Slots int
	More  bool
	Times []time.Time

	// Past reports whether the day is over; then its slots are not counted. Changed reports whether
	// the clocks change on it.
	Past, Changed bool
}

// maxTimes bounds Day.Times.
const maxTimes = 4

func newMonth(s *job.Schedule, year int, month time.Month, from time.Time) Month {
	zone := s.Location()
	first := time.Date(year, month, 1, 12, 0, 0, 0, zone)
	m := Month{First: first}
	column := (int(first.Weekday()) + 6) % 7
	var week [7]Day
	for date := first; date.Month() == first.Month(); date = time.Date(year, month, date.Day()+1, 12, 0, 0, 0, zone) {
		week[column] = newDay(s, date, from)
		if column++; column == 7 {
			m.Weeks, week, column = append(m.Weeks, week), [7]Day{}, 0
		}
	}
	if column > 0 {
		m.Weeks = append(m.Weeks, week)
	}
	return m
}

func newDay(s *job.Schedule, noon, from time.Time) Day {
	begin, end := midnight(noon), midnight(noon.AddDate(0, 0, 1))
	_, before := begin.Add(-time.Second).Zone()
	_, after := end.Add(-time.Second).Zone()
	d := Day{Number: noon.Day(), Date: noon, Past: !end.After(from), Changed: before != after}
	if d.Past {
		return d
	}
	if begin.Before(from) {
		begin = from.Add(time.Second)
	}
	for at := range s.Between(begin.Add(-time.Second), end.Add(-time.Second)) {
		if d.Slots == maxInDay {
			d.More = true
			break
		}
		if d.Slots++; len(d.Times) < maxTimes {
			d.Times = append(d.Times, at.In(noon.Location()))
		}
	}
	return d
}

// midnight returns the first instant of a day. If the clocks skip midnight, that is the instant of
// the change.
func midnight(noon time.Time) time.Time {
	y, m, d := noon.Date()
	t := time.Date(y, m, d, 0, 0, 0, 0, noon.Location())
	if t.Day() != d { // time.Date has chosen the hour before
		_, t = t.ZoneBounds()
	}
	return t
}
