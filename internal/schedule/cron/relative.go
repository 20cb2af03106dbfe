package cron

import (
	"fmt"
	"strconv"
	"strings"
)

// RelativeDays are the dates of a field that depend on the length of the month or on its weekdays. They
// have the meaning that they have in Quartz and supercronic, where these agree.
type RelativeDays struct {
	// FromEnd has bit n for the date n days before the last one of the month: L, and L-n.
	FromEnd uint64

	// Nearest has bit n for the day from Monday to Friday that is nearest to day n, in the same
	// month: nW. Bit 0 is for the last one of the month: LW. A month without a day n has none.
	Nearest uint64

	// Nth has bit 8*n + w for the n-th weekday w of the month: w#n. If n is 0, it is the last
	// one: wL.
	Nth uint64
}

const (
	wholeWeek = 1<<7 - 1
	monday    = 1 << 1
	friday    = 1 << 5
	workdays  = wholeWeek - 1 - 1<<6

	mostBeforeLast = 30
	mostNth        = 5
)

// addRelative adds an item to the set. ok is false if the item has none of these forms.
func (f cronField) addRelative(r *RelativeDays, item string) (ok bool, err error) {
	upper := strings.ToUpper(item)
	switch f.name {
	case "dom":
		return f.addDay(r, item, upper)
	case "dow":
		return f.addWeekday(r, item, upper)
	}
	return false, nil
}

// addDay adds L, L-3, LW or 15W.
func (f cronField) addDay(r *RelativeDays, item, upper string) (ok bool, err error) {
	before, fromEnd := strings.CutPrefix(upper, "L-")
	day, nearest := strings.CutSuffix(upper, "W")
	switch {
	case upper == "L":
		r.FromEnd |= 1
	case upper == "LW":
		r.Nearest |= 1
	case fromEnd:
		n, ok := number(before)
		if !ok || n < 1 || n > mostBeforeLast {
			return true, fmt.Errorf("%s %s: want L-1 to L-%d, the days before the last one", f.title, quote(item), mostBeforeLast)
		}
		r.FromEnd |= 1 << n
	case nearest:
		n, ok := number(day)
		if !ok || n < f.min || n > f.max {
			return true, fmt.Errorf("%s %s: want 1W to 31W or LW, one day", f.title, quote(item))
		}
		r.Nearest |= 1 << n
	default:
		return false, nil
	}
	return true, nil
}

// addWeekday adds FRIL or FRI#2, where the day may also be a number.
func (f cronField) addWeekday(r *RelativeDays, item, upper string) (ok bool, err error) {
	day, last := strings.CutSuffix(upper, "L")
	n := 0
	if !last {
		var nth string
		var isNth bool
		if day, nth, isNth = strings.Cut(upper, "#"); !isNth {
			return false, nil
		}
		if n, ok = number(nth); !ok || n < 1 || n > mostNth {
			return true, fmt.Errorf("%s %s: want FRI#1 to FRI#%d, or FRIL for the last one", f.title, quote(item), mostNth)
		}
	}
	if day == "" {
		return true, fmt.Errorf("%s %s: want a day before it, like FRIL for the last Friday of the month", f.title, quote(item))
	}
	w, err := f.value(item, day)
	if err != nil {
		return true, err
	}
	r.Nth |= 1 << (8*n + w%7)
	return true, nil
}

// onDay returns the weekdays on which the day matches FromEnd or Nearest, in a month of that length.
func (r RelativeDays) onDay(length, day int) (weekdays uint8) {
	if r.FromEnd>>(length-day)&1 == 1 {
		return wholeWeek
	}
	for n := nextBit(r.Nearest, 0); n <= length; n = nextBit(r.Nearest, n+1) {
		target := n
		if n == 0 {
			target = length
		}
		weekdays |= nearestTo(target, length, day)
	}
	return weekdays
}

// nearestTo returns the weekdays on which the day is the one from Monday to Friday that is nearest to
// the target.
func nearestTo(target, length, day int) uint8 {
	switch {
	case day == target:
		return workdays
	case day == target-1: // the target is a Saturday
		return friday
	case day == target+1: // the target is a Sunday
		return monday
	case target == 1 && day == 3: // a Saturday, and the Friday before is in another month
		return monday
	case target == length && day == length-2: // a Sunday, and the Monday after is in another month
		return friday
	}
	return 0
}

// onNth returns the weekdays on which the day matches Nth, in a month of that length.
func (r RelativeDays) onNth(length, day int) uint8 {
	n := (day-1)/7 + 1
	weekdays := r.Nth >> (8 * n)
	if day+7 > length {
		weekdays |= r.Nth
	}
	return uint8(weekdays & wholeWeek)
}

// number reads up to nine digits, without a sign.
func number(text string) (int, bool) {
	const most = 9
	if text == "" || len(text) > most || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}
