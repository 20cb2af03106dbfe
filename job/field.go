package job

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
)

// cronField is one of the six fields of a cron expression.
type cronField struct {
	name     string // as it enters the hash
	title    string // as errors say it
	min, max int
	hashMax  int      // the end of a plain H
	names    []string // of min and what follows
}

// Plain H keeps to the days that every month has.
var cronFields = [6]cronField{
	{name: "second", title: "second", max: 59, hashMax: 59},
	{name: "minute", title: "minute", max: 59, hashMax: 59},
	{name: "hour", title: "hour", max: 23, hashMax: 23},
	{name: "dom", title: "day of month", min: 1, max: 31, hashMax: 28},
	{name: "month", title: "month", min: 1, max: 12, hashMax: 12, names: []string{
		"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{name: "dow", title: "day of week", max: 6, hashMax: 6, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
}

// resolve checks text against a grammar stricter than robfig/cron's, which
// panics, loops or guesses on bad input, and returns it with stars, numbers,
// ranges and steps only: names and H replaced by numbers.
func (f cronField) resolve(job, text string) (string, error) {
	items := strings.Split(text, ",")
	for i, item := range items {
		resolved, err := f.resolveItem(job, item)
		if err != nil {
			return "", err
		}
		items[i] = resolved
	}
	return strings.Join(items, ","), nil
}

func (f cronField) resolveItem(job, item string) (string, error) {
	base, stepText, stepped := strings.Cut(item, "/")
	if base == "" {
		return "", fmt.Errorf("%s %s: a value is missing: want %s", f.title, quote(item), f.want())
	}
	step := 1
	if stepped {
		var ok bool
		if step, ok = number(stepText); !ok || step < 1 || step > f.max-f.min+1 {
			return "", fmt.Errorf("%s %s: step %s: want 1-%d", f.title, quote(item), quote(stepText), f.max-f.min+1)
		}
	}
	if base == "*" || base == "?" {
		if !stepped {
			return "*", nil
		}
		return fmt.Sprintf("*/%d", step), nil
	}
	if strings.HasPrefix(base, "H") {
		return f.resolveHash(job, item, base, step, stepped)
	}
	return f.resolveRange(item, base, step, stepped)
}

// resolveHash replaces H, H(a-b) and the two with a step.
func (f cronField) resolveHash(job, item, base string, step int, stepped bool) (string, error) {
	if job == "" {
		return "", fmt.Errorf("%s %s: H needs a job's name to hash, and there is none here", f.title, quote(item))
	}
	low, high := f.min, f.hashMax
	if base != "H" {
		inner, opened := strings.CutPrefix(base, "H(")
		inner, closed := strings.CutSuffix(inner, ")")
		from, to, ok := strings.Cut(inner, "-")
		if !opened || !closed || !ok {
			return "", fmt.Errorf("%s %s: want H, H(%d-%d) or either with a step, like H/5", f.title, quote(item), f.min, f.max)
		}
		var err error
		if low, high, err = f.bounds(item, from, to); err != nil {
			return "", err
		}
	}
	if !stepped {
		n := low + stableHash(job, f.name, high-low+1)
		if n > f.max {
			n = f.min // Sunday as the seventh day
		}
		return strconv.Itoa(n), nil
	}
	if step > high-low+1 {
		return "", fmt.Errorf("%s %s: step %d is longer than the range %d-%d", f.title, quote(item), step, low, high)
	}
	return f.numbers(low+stableHash(job, f.name, step), high, step), nil
}

func (f cronField) resolveRange(item, base string, step int, stepped bool) (string, error) {
	from, to, ranged := strings.Cut(base, "-")
	if !ranged {
		low, err := f.value(item, from)
		if err != nil {
			return "", err
		}
		if f.name == "dow" && low == 7 {
			low = 0
		}
		if stepped { // "5/15" is "5-59/15"
			return fmt.Sprintf("%d-%d/%d", low, f.max, step), nil
		}
		return strconv.Itoa(low), nil
	}
	low, high, err := f.bounds(item, from, to)
	if err != nil {
		return "", err
	}
	return f.numbers(low, high, step), nil
}

// numbers is a range with a step as the parser reads it: Sunday as the seventh day it
// does not know.
func (f cronField) numbers(low, high, step int) string {
	if high <= f.max {
		return fmt.Sprintf("%d-%d/%d", low, high, step)
	}
	var days []string
	for day := low; day <= high; day += step {
		days = append(days, strconv.Itoa(day%7))
	}
	return strings.Join(days, ",")
}

func (f cronField) bounds(item, from, to string) (low, high int, err error) {
	if low, err = f.value(item, from); err != nil {
		return 0, 0, err
	}
	if high, err = f.value(item, to); err != nil {
		return 0, 0, err
	}
	if f.name == "dow" && strings.EqualFold(to, "SUN") && low > 0 {
		high = 7 // MON-SUN
	}
	if low > high {
		return 0, 0, fmt.Errorf("%s %s: the range begins after it ends; write two, like %s-%d,%d-%s", f.title, quote(item), from, f.max, f.min, to)
	}
	return low, high, nil
}

// value reads a number or a name.
func (f cronField) value(item, text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}
	most := f.max
	if f.name == "dow" {
		most = 7
	}
	n, ok := number(text)
	if ok && f.min <= n && n <= most {
		return n, nil
	}
	if text == item {
		return 0, fmt.Errorf("%s %s: want %s", f.title, quote(text), f.want())
	}
	return 0, fmt.Errorf("%s %s: %s: want %s", f.title, quote(item), quote(text), f.want())
}

func (f cronField) want() string {
	numbers := fmt.Sprintf("%d-%d", f.min, f.max)
	if f.names == nil {
		return numbers
	}
	return fmt.Sprintf("%s or %s-%s", numbers, f.names[0], f.names[len(f.names)-1])
}

// number reads plain digits: no sign, no blank, nothing that could overflow.
func number(text string) (int, bool) {
	const most = 9
	if text == "" || len(text) > most || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// quote quotes what is not a number.
func quote(text string) string {
	if _, ok := number(text); ok {
		return text
	}
	return strconv.Quote(codec.Clip(text))
}
