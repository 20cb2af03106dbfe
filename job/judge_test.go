package job_test

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
)

// judge is a second implementation of schedules. It is slow and simple, and shares no code with the
// first. It visits each instant of a window, and compares the wall time there with the fields of the
// expression.
type judge struct {
	walk
	elapsed  bool
	matched  []bool // by index in walk.instants
	match    func(wall time.Time) bool
	excluded []bool
}

func newJudge(w walk, p job.Plan) judge {
	fields := strings.Fields(p.Schedule)
	hour := fields[len(fields)-4]
	j := judge{walk: w, elapsed: hour[0] == '*', match: naiveMatch(p.Schedule, 0)}
	var excludes []func(time.Time) bool
	for _, x := range p.Exclude {
		exclude := func(wall time.Time) bool { return wall.Format("2006-01-02") == x }
		if strings.Contains(x, " ") {
			exclude = naiveMatch(x, -1)
		}
		excludes = append(excludes, exclude)
	}
	for _, wall := range w.walls {
		j.matched = append(j.matched, j.match(wall))
		j.excluded = append(j.excluded, slices.ContainsFunc(excludes, func(f func(time.Time) bool) bool { return f(wall) }))
	}
	return j
}

// naiveStep returns the smallest distance between slots of an expression, in seconds.
func naiveStep(expression string) int64 {
	if len(strings.Fields(expression)) == 6 {
		return 1
	}
	return 60
}

// wallTime returns the wall time at u in loc, as a time in UTC.
func wallTime(loc *time.Location, u int64) time.Time {
	t := time.Unix(u, 0).In(loc)
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// walk has the wall times in a window of instants. It can be used for many schedules.
type walk struct {
	step     int64
	instants []int64
	walls    []time.Time
	gap      []bool // the clock skipped wall times just before this instant
	earlier  []bool // this wall time also occurs earlier in the window
	later    []bool // this wall time also occurs later in the window
}

func newWalk(loc *time.Location, step, from, to int64) walk {
	w := walk{step: step}
	shown := map[int64]int{}
	for u := from - from%step; u <= to; u += step {
		wall := wallTime(loc, u)
		before, repeated := shown[wall.Unix()]
		if repeated {
			w.later[before] = true
		}
		shown[wall.Unix()] = len(w.instants)
		w.gap = append(w.gap, len(w.walls) > 0 && wall.Unix()-w.walls[len(w.walls)-1].Unix() > step)
		w.instants, w.walls = append(w.instants, u), append(w.walls, wall)
		w.earlier, w.later = append(w.earlier, repeated), append(w.later, false)
	}
	return w
}

// slots lists the slots in the window under a pair of policies. Near the ends of the window they may
// be wrong, since the wall times beyond it are not known.
func (j judge) slots(gap job.GapPolicy, repeat job.RepeatPolicy) []int64 {
	var slots []int64
	for i, u := range j.instants {
		if !j.excluded[i] && (j.onTheClock(i, repeat) || gap == job.GapAfter && j.afterGap(i)) {
			slots = append(slots, u)
		}
	}
	return slots
}

func (j judge) onTheClock(i int, repeat job.RepeatPolicy) bool {
	switch {
	case !j.matched[i]:
		return false
	case j.elapsed || repeat == job.RepeatBoth:
		return true
	case repeat == job.RepeatFirst:
		return !j.earlier[i]
	default:
		return !j.later[i]
	}
}

// afterGap reports whether the expression matches a wall time that the clock skipped just before this
// instant.
func (j judge) afterGap(i int) bool {
	if j.elapsed || !j.gap[i] {
		return false
	}
	step := time.Duration(j.step) * time.Second
	for wall := j.walls[i-1].Add(step); wall.Before(j.walls[i]); wall = wall.Add(step) {
		if j.match(wall) {
			return true
		}
	}
	return false
}

// naiveMatch parses stars, numbers, names, ranges, steps and lists. If the expression has five
// fields, seconds is the value of the missing first one, and a negative value means a star.
func naiveMatch(text string, seconds int) func(time.Time) bool {
	fields := strings.Fields(text)
	if len(fields) == 5 {
		first := "*"
		if seconds >= 0 {
			first = strconv.Itoa(seconds)
		}
		fields = append([]string{first}, fields...)
	}
	second, _ := naiveField(fields[0], 0, 59)
	minute, _ := naiveField(fields[1], 0, 59)
	hour, _ := naiveField(fields[2], 0, 23)
	domPlain, domRelative := naiveItems(fields[3], "LW")
	dowPlain, dowRelative := naiveItems(fields[5], "L#")
	dom, domStar := naiveField(domPlain, 1, 31)
	month, _ := naiveField(fields[4], 1, 12)
	dow, dowStar := naiveField(dowPlain, 0, 7)
	dow[0] = dow[0] || dow[7]
	return func(t time.Time) bool {
		if !second[t.Second()] || !minute[t.Minute()] || !hour[t.Hour()] || !month[int(t.Month())] {
			return false
		}
		onDay := dom[t.Day()] || slices.ContainsFunc(domRelative, func(item string) bool { return naiveDay(t, item) })
		onWeekday := dow[int(t.Weekday())] || slices.ContainsFunc(dowRelative, func(item string) bool { return naiveWeekday(t, item) })
		if domStar || dowStar {
			return onDay && onWeekday
		}
		return onDay || onWeekday
	}
}

// naiveItems splits a field into its plain items and those that end with one of the marks, or have one.
func naiveItems(text, marks string) (plain string, relative []string) {
	var rest []string
	for _, item := range strings.Split(text, ",") {
		if isName := len(item) == 3 && strings.Trim(item, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""; !isName && strings.ContainsAny(item, marks) {
			relative = append(relative, item)
		} else {
			rest = append(rest, item)
		}
	}
	return strings.Join(rest, ","), relative
}

// naiveDay walks from the end of the month for L-3, and from the day wanted for 15W and LW.
func naiveDay(t time.Time, item string) bool {
	end := time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC)
	if before, ok := strings.CutPrefix(item, "L"); ok && item != "LW" {
		n, _ := strconv.Atoi(before)
		wanted := end.AddDate(0, 0, n) // before is negative, or empty
		return wanted.Month() == t.Month() && wanted.Day() == t.Day()
	}
	wanted := end
	if item != "LW" {
		n, _ := strconv.Atoi(strings.TrimSuffix(item, "W"))
		if n > end.Day() {
			return false
		}
		wanted = wanted.AddDate(0, 0, n-end.Day())
	}
	for _, days := range []int{0, -1, 1, -2, 2} {
		if near := wanted.AddDate(0, 0, days); near.Month() == t.Month() && near.Weekday() != time.Saturday && near.Weekday() != time.Sunday {
			return near.Day() == t.Day()
		}
	}
	return false
}

// naiveWeekday counts the same weekdays before and after.
func naiveWeekday(t time.Time, item string) bool {
	day, last := strings.CutSuffix(item, "L")
	day, nth, _ := strings.Cut(day, "#")
	if naiveValue(day)%7 != int(t.Weekday()) {
		return false
	}
	if last {
		return t.AddDate(0, 0, 7).Month() != t.Month()
	}
	before := 0
	for d := t.AddDate(0, 0, -7); d.Month() == t.Month(); d = d.AddDate(0, 0, -7) {
		before++
	}
	return strconv.Itoa(before+1) == nth
}

func naiveField(text string, low, high int) (set [64]bool, star bool) {
	if text == "" {
		return set, false
	}
	for _, item := range strings.Split(text, ",") {
		base, stepText, stepped := strings.Cut(item, "/")
		step, from, to := 1, low, high
		if stepped {
			step, _ = strconv.Atoi(stepText)
		}
		if high == 7 && (stepped || base == "*") {
			to = 6 // in a star or a step Sunday is 0 only
		}
		switch a, b, ranged := strings.Cut(base, "-"); {
		case base == "*":
			star = star || step == 1
		case ranged:
			from, to = naiveValue(a), naiveValue(b)
		case stepped:
			from = naiveValue(a)
		default:
			from, to = naiveValue(a), naiveValue(a)
		}
		for n := from; n <= to; n += step {
			set[n] = true
		}
	}
	return set, star
}

func naiveValue(text string) int {
	for i, name := range []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"} {
		if text == name {
			return i + 1
		}
	}
	for i, name := range []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"} {
		if text == name {
			return i
		}
	}
	n, _ := strconv.Atoi(text)
	return n
}
