package cron

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

const (
	maxExclude = 1000
	// maxExcludeExpressions is the number of bits of a set of expressions.
	maxExcludeExpressions = 64
)

// Exclusions are the dates and the expressions that no slot may match.
type Exclusions struct {
	dates       map[int64]bool // days since 1970
	expressions []Fields
}

// active returns the set of the expressions that match the date, if its month has that many days.
func (x Exclusions) active(length, month, day, weekday int) uint64 {
	var set uint64
	for i, f := range x.expressions {
		if f.weekdays(length, month, day)>>weekday&1 == 1 {
			set |= 1 << i
		}
	}
	return set
}

// excludedSeconds returns the seconds of a minute that the active expressions match.
func (x Exclusions) excludedSeconds(active uint64, hour, minute int) uint64 {
	var set uint64
	for i := nextBit(active, 0); i < 64; i = nextBit(active, i+1) {
		if f := x.expressions[i]; f.Hour>>hour&1 == 1 && f.Minute>>minute&1 == 1 {
			set |= f.Second
		}
	}
	return set
}

// match reports whether a wall time is excluded.
func (x Exclusions) match(wall int64) bool {
	number, second := floorDiv(wall, daySeconds), int(floorMod(wall, daySeconds))
	if x.dates[number] {
		return true
	}
	if len(x.expressions) == 0 {
		return false
	}
	year, month, day := time.Unix(wall, 0).UTC().Date()
	active := x.active(daysIn(year, int(month)), int(month), day, int(floorMod(number+4, 7)))
	return x.excludedSeconds(active, second/3600, second/60%60)>>(second%60)&1 == 1
}

func (x Exclusions) None() bool { return len(x.dates)+len(x.expressions) == 0 }

// String returns the same text for equal exclusions.
func (x Exclusions) String() string {
	var parts []string
	for d := range x.dates {
		parts = append(parts, fmt.Sprint(d))
	}
	for _, f := range x.expressions {
		parts = append(parts, f.String())
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), ",")
}

// ParseExclusions reads a list of dates and cron expressions.
func ParseExclusions(list []string) (Exclusions, error) {
	x := Exclusions{dates: map[int64]bool{}}
	if len(list) > maxExclude {
		return x, fmt.Errorf("%w exclude: %d entries, at most %d", codec.ErrInvalid, len(list), maxExclude)
	}
	for _, text := range list {
		if date, err := time.Parse(time.DateOnly, text); err == nil {
			x.dates[date.Unix()/daySeconds] = true
			continue
		}
		err := checkText(text)
		if err == nil && len(strings.Fields(text)) < 2 {
			err = errors.New("want a date like 2026-12-25, or a cron expression like \"* * 25 12 *\"")
		}
		var f Fields
		if err == nil {
			// Five fields exclude the whole minute.
			f, _, err = parseFields("", text, "*")
		}
		if err != nil {
			return x, fmt.Errorf("%w exclude %q: %w", codec.ErrInvalid, codec.Clip(text), err)
		}
		x.expressions = append(x.expressions, f)
	}
	if n := len(x.expressions); n > maxExcludeExpressions {
		return x, fmt.Errorf("%w exclude: %d expressions, at most %d", codec.ErrInvalid, n, maxExcludeExpressions)
	}
	return x, nil
}
