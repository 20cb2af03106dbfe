package words

import (
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/schedule/cron"
)

// maxTimes bounds the times of day that are listed one by one.
const maxTimes = 6

// timeOfDay says at which times of a day something happens. fixed reports whether the text lists
// times of the clock ("at 07:00 and 12:00"), so that it reads well after a date.
func timeOfDay(s, m, h set) (text string, fixed bool) {
	if !s.one() {
		return seconds(s, m, h), false
	}
	clock := func(hour, minute int) string {
		if s.first() == 0 {
			return fmt.Sprintf("%02d:%02d", hour, minute)
		}
		return fmt.Sprintf("%02d:%02d:%02d", hour, minute, s.first())
	}
	exact := ""
	if s.first() != 0 {
		exact = fmt.Sprintf(", at second %d", s.first())
	}
	span := fmt.Sprintf(" from %s to %s", clock(h.first(), m.first()), clock(h.last(), m.last()))
	switch step := m.cycle(60); {
	case len(m)*len(h) <= maxTimes && !h.all(24):
		var times []string
		for _, hour := range h {
			for _, minute := range m {
				times = append(times, clock(hour, minute))
			}
		}
		return "at " + and(times), true
	case m.one() && h.all(24) && m.first() == 0 && exact == "":
		return "every hour, on the hour", false
	case m.one() && h.all(24):
		return fmt.Sprintf("every hour at minute %d", m.first()) + exact, false
	case m.one() && h.step() > 0:
		return "every " + count(h.step(), "hour") + span, false
	case step > 0 && h.all(24) && m.first() == 0:
		return "every " + count(step, "minute") + exact, false
	case step > 0 && h.all(24):
		return fmt.Sprintf("every %s, from minute %d of the hour on", count(step, "minute"), m.first()) + exact, false
	case step > 0 && h.within():
		return "every " + count(step, "minute") + span, false
	}
	return "at minute " + m.list(digits) + ofHours(h) + exact, false
}

// seconds is timeOfDay for more than one second in a minute.
func seconds(s, m, h set) string {
	text := "at second " + s.list(digits)
	if step := s.cycle(60); step > 0 && s.first() == 0 {
		text = "every " + count(step, "second")
	}
	switch {
	case m.all(60) && h.all(24):
		return text
	case m.all(60):
		return text + " of each minute" + ofHours(h)
	}
	return text + " of minute " + m.list(digits) + ofHours(h)
}

func ofHours(h set) string {
	if h.all(24) {
		return " of every hour"
	}
	if h.one() {
		return fmt.Sprintf(" of hour %d", h.first())
	}
	return " of the hours " + h.list(digits)
}

// dates says on which dates something happens. It returns "" if that is every date. As in every
// cron, a date has to match only one of the two day fields if both restrict it.
func dates(s cron.Fields) string {
	every := cron.Everything
	months, days := numbers(s.Month), numbers(s.Day)
	in, on := "", []string{}
	if s.Month != every.Month {
		in = " in " + months.list(month)
	}
	whole := s.Day == every.Day && s.Weekday == every.Weekday ||
		s.Either && (s.Day == every.Day || s.Weekday == every.Weekday) // like "1-31 * MON"
	switch {
	case whole && in == "":
		return ""
	case whole:
		return "every day" + in
	case s.Day == every.Day:
	case days.one() && months.one():
		on = append(on, fmt.Sprintf("every year on %d %s", days.first(), month(months.first())))
	case in == "":
		on = append(on, "on the "+days.list(ordinal)+" of the month")
	default:
		on = append(on, "on the "+days.list(ordinal)+in)
	}
	if s.Weekday != every.Weekday {
		on = append(on, weekdays(s)+in)
	}
	return strings.Join(on, ", and ")
}

func weekdays(s cron.Fields) string {
	days := numbers(s.Weekday)
	switch {
	case days.equal(0, 6):
		return "Saturday and Sunday"
	case days.one():
		return "every " + weekday(days.first())
	case days.first() == 0: // a week begins on Monday
		days = append(days[1:len(days):len(days)], 7)
	}
	return days.list(weekday)
}

func month(n int) string   { return time.Month(n).String() }
func weekday(n int) string { return time.Weekday(n % 7).String() }
