package cron

import (
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
)

// cronField is one of the six fields of a cron expression.
type cronField struct {
	name     string // in the hash
	title    string // in errors
	min, max int
	hashMax  int      // the largest value of H
	names    []string // of min, min+1 and so on
}

// cronFields are the fields in the order of an expression with seconds. The hashMax of the day is 28,
// so that H without a range is a day that every month has.
var cronFields = [6]cronField{
	{name: "second", title: "second", max: 59, hashMax: 59},
	{name: "minute", title: "minute", max: 59, hashMax: 59},
	{name: "hour", title: "hour", max: 23, hashMax: 23},
	{name: "dom", title: "day of month", min: 1, max: 31, hashMax: 28},
	{name: "month", title: "month", min: 1, max: 12, hashMax: 12, names: []string{
		"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{name: "dow", title: "day of week", max: 6, hashMax: 6, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
}

// parse reads one field, which is a list of items. restricts reports whether a day field restricts
// the dates: it does not if one of its items is a star.
func (f cronField) parse(job, text string) (set uint64, restricts bool, err error) {
	restricts = true
	for item := range strings.SplitSeq(text, ",") {
		one, star, err := f.parseItem(job, item)
		if err != nil {
			return 0, false, err
		}
		set |= one
		restricts = restricts && !star
	}
	return set, restricts, nil
}

// parseItem reads one item: a star, a number, a range or an H, and its step. star reports
// whether the item is * or ?, without a step or with the step 1.
func (f cronField) parseItem(job, item string) (set uint64, star bool, err error) {
	base, stepText, stepped := strings.Cut(item, "/")
	if base == "" {
		return 0, false, fmt.Errorf("%s %s: a value is missing: want %s", f.title, quote(item), f.want())
	}
	step := 1
	if stepped {
		var ok bool
		if step, ok = number(stepText); !ok || step < 1 || step > f.max-f.min+1 {
			return 0, false, fmt.Errorf("%s %s: step %s: want 1-%d", f.title, quote(item), quote(stepText), f.max-f.min+1)
		}
	}
	switch {
	case base == "*" || base == "?":
		return f.every(f.min, f.max, step), step == 1, nil
	case strings.HasPrefix(base, "H"):
		set, err = f.parseHash(job, item, base, step, stepped)
	default:
		set, err = f.parseRange(item, base, step, stepped)
	}
	return set, false, err
}

// parseHash reads H and H(a-b), with or without a step.
func (f cronField) parseHash(job, item, base string, step int, stepped bool) (uint64, error) {
	if job == "" {
		return 0, fmt.Errorf("%s %s: H needs a job's name to hash, and there is none here", f.title, quote(item))
	}
	low, high := f.min, f.hashMax
	if base != "H" {
		inner, opened := strings.CutPrefix(base, "H(")
		inner, closed := strings.CutSuffix(inner, ")")
		from, to, ok := strings.Cut(inner, "-")
		if !opened || !closed || !ok {
			return 0, fmt.Errorf("%s %s: want H, H(%d-%d) or either with a step, like H/5", f.title, quote(item), f.min, f.max)
		}
		var err error
		if low, high, err = f.bounds(item, from, to); err != nil {
			return 0, err
		}
	}
	if !stepped {
		n := low + StableHash(job, f.name, high-low+1)
		return f.every(n, n, 1), nil
	}
	if step > high-low+1 {
		return 0, fmt.Errorf("%s %s: step %d is longer than the range %d-%d", f.title, quote(item), step, low, high)
	}
	return f.every(low+StableHash(job, f.name, step), high, step), nil
}

// parseRange reads a, a-b and either with a step; "5/15" means "5-59/15".
func (f cronField) parseRange(item, base string, step int, stepped bool) (uint64, error) {
	from, to, ranged := strings.Cut(base, "-")
	if ranged {
		low, high, err := f.bounds(item, from, to)
		return f.every(low, high, step), err
	}
	low, err := f.value(item, from)
	if f.name == "dow" && low == 7 {
		low = 0
	}
	high := low
	if stepped {
		high = f.max
	}
	return f.every(low, high, step), err
}

// every returns the set of low, low+step and so on up to high. In the day of week, 7 is
// Sunday, as 0 is.
func (f cronField) every(low, high, step int) (set uint64) {
	for n := low; n <= high; n += step {
		if n > f.max {
			set |= 1 << f.min
		} else {
			set |= 1 << n
		}
	}
	return set
}

// bounds reads the two ends of a range.
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

// want returns the valid values, for errors.
func (f cronField) want() string {
	numbers := fmt.Sprintf("%d-%d", f.min, f.max)
	if f.names == nil {
		return numbers
	}
	return fmt.Sprintf("%s or %s-%s", numbers, f.names[0], f.names[len(f.names)-1])
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

// quote quotes a text that is not a number.
func quote(text string) string {
	if _, ok := number(text); ok {
		return text
	}
	return strconv.Quote(codec.Clip(text))
}

// StableHash returns a number below n for a field of a job: FNV-1a 64 of the job's name, a
// zero byte and the field's name, modulo n. The field is "second", "minute", "hour", "dom",
// "month", "dow" or "spread". Clients in other languages compute it too, and
// job/testdata/hash.json has vectors, so it must never change.
func StableHash(job, field string, n int) int {
	h := fnv.New64a()
	_, _ = io.WriteString(h, job+"\x00"+field) // a hash never fails
	return int(h.Sum64() % uint64(n))
}
