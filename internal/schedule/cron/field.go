package cron

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
	"strconv"
	"strings"

	robfig "github.com/robfig/cron/v3"

	"github.com/cronce-io/cronce/internal/codec"
)

// cronField is one of the six fields of a cron expression.
type cronField struct {
	name     string // in the hash
	title    string // in errors
	min, max int
	hashMax  int    // the largest value of H
	names    string // of the values, in errors

	option robfig.ParseOption
	bits   func(*robfig.SpecSchedule) uint64
}

// cronFields are the fields in the order of an expression with seconds. The hashMax of the day is 28,
// so that H without a range is a day that every month has.
var cronFields = [6]cronField{
	{name: "second", title: "second", max: 59, hashMax: 59,
		option: robfig.Second, bits: func(s *robfig.SpecSchedule) uint64 { return s.Second }},
	{name: "minute", title: "minute", max: 59, hashMax: 59,
		option: robfig.Minute, bits: func(s *robfig.SpecSchedule) uint64 { return s.Minute }},
	{name: "hour", title: "hour", max: 23, hashMax: 23,
		option: robfig.Hour, bits: func(s *robfig.SpecSchedule) uint64 { return s.Hour }},
	{name: "dom", title: "day of month", min: 1, max: 31, hashMax: 28,
		option: robfig.Dom, bits: func(s *robfig.SpecSchedule) uint64 { return s.Dom }},
	{name: "month", title: "month", min: 1, max: 12, hashMax: 12, names: "JAN-DEC",
		option: robfig.Month, bits: func(s *robfig.SpecSchedule) uint64 { return s.Month }},
	{name: "dow", title: "day of week", max: 6, hashMax: 6, names: "SUN-SAT",
		option: robfig.Dow, bits: func(s *robfig.SpecSchedule) uint64 { return s.Dow }},
}

// star is the bit by which robfig/cron marks a field that has a star, without a step or with the step 1.
const star = 1 << 63

// fieldSet is what one field matches.
type fieldSet struct {
	values uint64
	RelativeDays

	// restricts is true for a day field that restricts the dates: none of its items is a star.
	restricts bool
}

// parse reads one field, which is a list of items.
func (f cronField) parse(job, text string) (fieldSet, error) {
	var plain []string
	set := fieldSet{restricts: true}
	for item := range strings.SplitSeq(text, ",") {
		relative, err := f.addRelative(&set.RelativeDays, item)
		if err != nil {
			return set, err
		}
		if relative {
			continue
		}
		resolved, err := f.resolve(job, item)
		if err != nil {
			return set, err
		}
		plain = append(plain, resolved)
	}
	if len(plain) == 0 {
		return set, nil
	}
	values, err := f.read(strings.Join(plain, ","))
	if err != nil {
		return set, fmt.Errorf("%s %s: %w", f.title, quote(text), err)
	}
	set.values, set.restricts = values&^star, values&star == 0
	return set, nil
}

// read has robfig/cron read one field. It panics on some texts and misreads others, so text must be
// made of what resolve returns, or be a plain number or name.
func (f cronField) read(text string) (uint64, error) {
	schedule, err := robfig.NewParser(f.option).Parse(text)
	if err != nil {
		return 0, err
	}
	return f.bits(schedule.(*robfig.SpecSchedule)), nil
}

// resolve checks the form of one item: a star, a number, a range or an H, and its step. It returns
// the item for robfig/cron, which knows neither H nor 7 for Sunday.
func (f cronField) resolve(job, item string) (string, error) {
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
	switch {
	case base == "*" || base == "?":
		return item, nil
	case strings.HasPrefix(base, "H"):
		return f.resolveHash(job, item, base, step, stepped)
	}
	return f.resolveRange(item, base, step, stepped)
}

// resolveHash resolves H and H(a-b), with or without a step.
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
		n := low + StableHash(job, f.name, high-low+1)
		return f.plain(n, n, 1), nil
	}
	if step > high-low+1 {
		return "", fmt.Errorf("%s %s: step %d is longer than the range %d-%d", f.title, quote(item), step, low, high)
	}
	return f.plain(low+StableHash(job, f.name, step), high, step), nil
}

// resolveRange resolves a, a-b and either with a step; "5/15" means "5-59/15".
func (f cronField) resolveRange(item, base string, step int, stepped bool) (string, error) {
	from, to, ranged := strings.Cut(base, "-")
	if ranged {
		low, high, err := f.bounds(item, from, to)
		return f.plain(low, high, step), err
	}
	low, err := f.value(item, from)
	if low > f.max {
		low = f.min
	}
	high := low
	if stepped {
		high = f.max
	}
	return f.plain(low, high, step), err
}

// plain writes low, low+step and so on up to high for robfig/cron. In the day of week, 7 is Sunday, as
// 0 is.
func (f cronField) plain(low, high, step int) string {
	sunday := high > f.max && (high-low)%step == 0
	switch {
	case low > f.max:
		return strconv.Itoa(f.min)
	case sunday:
		return fmt.Sprintf("%d-%d/%d,%d", low, f.max, step, f.min)
	}
	return fmt.Sprintf("%d-%d/%d", low, min(high, f.max), step)
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

// value reads a number or a name. In the day of week, the number may be 7.
func (f cronField) value(item, text string) (int, error) {
	most := f.max
	if f.name == "dow" {
		most = 7
	}
	if n, ok := number(text); ok && f.min <= n && n <= most {
		return n, nil
	}
	if isWord(text) {
		if set, err := f.read(text); err == nil {
			return bits.TrailingZeros64(set), nil
		}
	}
	if text == item {
		return 0, fmt.Errorf("%s %s: want %s", f.title, quote(text), f.want())
	}
	return 0, fmt.Errorf("%s %s: %s: want %s", f.title, quote(item), quote(text), f.want())
}

// want returns the valid values, for errors.
func (f cronField) want() string {
	numbers := fmt.Sprintf("%d-%d", f.min, f.max)
	switch {
	case f.name == "dom":
		return numbers + ", L, L-3, LW or 15W"
	case f.name == "dow":
		return numbers + " or " + f.names + ", FRIL or FRI#2"
	case f.names == "":
		return numbers
	}
	return numbers + " or " + f.names
}

// isWord reports whether text consists of letters, as the names of months and days do.
func isWord(text string) bool {
	return text != "" && strings.Trim(strings.ToUpper(text), "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
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
