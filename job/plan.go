package job

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/suggest"
)

// WithDefaults returns the plan with its empty fields filled.
func (p Plan) WithDefaults() Plan {
	def(&p.Timezone, "UTC")
	def(&p.DSTGap, GapAfter)
	def(&p.DSTOverlap, RepeatFirst)
	return p
}

// parseSource compiles the plan's schedule.
func parseSource(name string, p Plan, zone *time.Location, exclude exclusions) (source, error) {
	src, err := parseText(name, p, zone, exclude)
	if err != nil {
		return nil, fmt.Errorf("%w schedule %q: %w", ErrInvalid, codec.Clip(p.Schedule), err)
	}
	return src, nil
}

func parseText(name string, p Plan, zone *time.Location, exclude exclusions) (source, error) {
	if err := checkText(p.Schedule); err != nil {
		return nil, err
	}
	text := strings.TrimSpace(p.Schedule)
	word, rest, _ := strings.Cut(text, " ")
	switch rest = strings.TrimSpace(rest); {
	case text == "":
		return nil, errors.New("it is empty: want five cron fields like \"0 7 * * MON-FRI\", six with seconds first, or a word like @daily")
	case word == "@every":
		period, err := parseEvery(rest)
		if err != nil {
			return nil, err
		}
		return newEverySource(period, zone, exclude), nil
	case word == "@at":
		at, err := parseAt(rest)
		return onceSource{at, zone, exclude}, err
	case descriptors[text] != "":
		text = descriptors[text]
	case strings.HasPrefix(text, "@"):
		return nil, unknownDescriptor(text)
	}
	fields, elapsed, err := parseFields(name, text, "0")
	if err != nil {
		return nil, err
	}
	gap, repeat := p.DSTGap, p.DSTOverlap
	if elapsed {
		// Every instant at which the clock matches is a slot, whatever the policies are.
		gap, repeat = GapSkip, RepeatBoth
	}
	return newWallSource(fields, zone, gap, repeat, exclude), nil
}

func unknownDescriptor(text string) error {
	var words []string
	for word := range descriptors {
		words = append(words, word)
	}
	if near := suggest.Nearest(text, words); near != "" {
		return fmt.Errorf("unknown word; did you mean %s?", near)
	}
	return errors.New("unknown word: want @yearly, @monthly, @weekly, @daily, @hourly, @every 90s or @at 2027-01-01T00:00:00Z")
}

func checkPolicies(p Plan) error {
	switch p.DSTGap {
	case GapAfter, GapSkip:
	default:
		return fmt.Errorf("%w dst_gap %q: want after or skip", ErrInvalid, codec.Clip(string(p.DSTGap)))
	}
	switch p.DSTOverlap {
	case RepeatFirst, RepeatSecond, RepeatBoth:
	default:
		return fmt.Errorf("%w dst_overlap %q: want first, second or both", ErrInvalid, codec.Clip(string(p.DSTOverlap)))
	}
	return nil
}

// parseBounds returns the first and the last instant that may be slots.
func parseBounds(from, until time.Time) (first, last int64, err error) {
	first, last = firstInstant, lastInstant
	if !from.IsZero() {
		first = max(first, ceilUnix(from))
	}
	if !until.IsZero() {
		last = min(last, ceilUnix(until)-1)
	}
	if !from.IsZero() && !until.IsZero() && !until.After(from) {
		err = fmt.Errorf("%w until %s: want an instant after from %s", ErrInvalid, until.Format(time.RFC3339), from.Format(time.RFC3339))
	}
	return first, last, err
}

// ceilUnix returns the first whole second at or after t.
func ceilUnix(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

func parseSpread(name string, spread time.Duration) (time.Duration, error) {
	if spread < 0 || spread > MaxSpread || spread%time.Second != 0 {
		return 0, fmt.Errorf("%w spread %v: want whole seconds, from 0s to %v", ErrInvalid, spread, MaxSpread)
	}
	if spread == 0 {
		return 0, nil
	}
	return time.Duration(stableHash(name, "spread", int(spread/time.Second))) * time.Second, nil
}
