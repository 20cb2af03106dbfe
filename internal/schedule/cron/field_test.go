package cron

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var (
	months = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	days   = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

	itemForm = regexp.MustCompile(`^(?:([*?])|([0-9]{1,9}|[A-Za-z]+)(?:-([0-9]{1,9}|[A-Za-z]+))?)(?:/([0-9]{1,9}))?$`)
)

// definition says which values a field without H matches. It tries each value against each item, and
// shares no code with the parser.
func definition(f cronField, text string) (set uint64, restricts, valid bool) {
	restricts = true
	value := func(word string) (int, bool) {
		names, first := map[string][]string{"month": months, "dow": days}[f.name], map[string]int{"month": 1}[f.name]
		for i, name := range names {
			if strings.EqualFold(word, name) {
				return first + i, true
			}
		}
		n, err := strconv.Atoi(word)
		return n, err == nil && n >= f.min && (n <= f.max || f.name == "dow" && n == 7)
	}
	for _, item := range strings.Split(text, ",") {
		m := itemForm.FindStringSubmatch(item)
		if m == nil {
			return 0, false, false
		}
		low, high, step, ok := f.min, f.max, 1, true
		if m[4] != "" {
			if step, _ = strconv.Atoi(m[4]); step < 1 || step > f.max-f.min+1 {
				return 0, false, false
			}
		}
		switch star := m[1] != ""; {
		case star:
			restricts = restricts && step > 1
		case m[3] != "":
			var last bool
			low, ok = value(m[2])
			high, last = value(m[3])
			ok = ok && last
			if f.name == "dow" && strings.EqualFold(m[3], "SUN") && low > 0 {
				high = 7
			}
		default:
			low, ok = value(m[2])
			if f.name == "dow" && low == 7 {
				low = 0
			}
			if m[4] == "" {
				high = low
			}
		}
		if !ok || low > high {
			return 0, false, false
		}
		for n := low; n <= high; n++ {
			if (n-low)%step == 0 && n <= f.max {
				set |= 1 << n
			} else if (n-low)%step == 0 {
				set |= 1 << f.min
			}
		}
	}
	return set, restricts, true
}

// drawText draws the text of a field: half of them are valid, and the others are a few bytes away from it, or are any bytes.
func drawText(t *rapid.T, f cronField) string {
	value := rapid.OneOf(rapid.Map(rapid.IntRange(f.min, f.max+1), strconv.Itoa), rapid.SampledFrom(append(months, days...)),
		rapid.SampledFrom([]string{"7", "SUN", "sun", "007", "0000000005", "61", "1000000000", "99999999999999999999"}))
	step := rapid.OneOf(rapid.Just(""), rapid.Just(""), rapid.Map(rapid.IntRange(0, f.max+2), func(n int) string { return fmt.Sprint("/", n) }),
		rapid.SampledFrom([]string{"/", "/1000000000", "/18446744073709551615", "/2/2", "/+2", "/01"}))
	base := rapid.OneOf(rapid.SampledFrom([]string{"*", "?", "*-5", "-1", "+1", ""}), value,
		rapid.Custom(func(t *rapid.T) string { return value.Draw(t, "from") + "-" + value.Draw(t, "to") }),
		rapid.Custom(func(t *rapid.T) string { // ordered, so that it is often valid
			from := rapid.IntRange(f.min, f.max).Draw(t, "from")
			return fmt.Sprintf("%d-%d", from, rapid.IntRange(from, f.max).Draw(t, "to"))
		}))
	var items []string
	for range rapid.IntRange(1, 3).Draw(t, "items") {
		items = append(items, base.Draw(t, "base")+step.Draw(t, "step"))
	}
	text := []byte(strings.Join(items, ","))
	if len(text) > 0 && rapid.IntRange(0, 4).Draw(t, "mutated") == 0 {
		text[rapid.IntRange(0, len(text)-1).Draw(t, "at")] = rapid.SampledFrom([]byte("0159*?-/,+.@=TZHs")).Draw(t, "byte")
	}
	return string(text)
}

func TestFieldsMatchTheirDefinition(t *testing.T) {
	t.Parallel()
	for _, f := range cronFields {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				for range 30 {
					compare(t, f, drawText(t, f))
				}
			})
		})
	}
}

func compare(t *rapid.T, f cronField, text string) {
	if strings.HasPrefix(text, "H") || strings.Contains(text, ",H") {
		return // TestHResolvesToTheHashOfTheJobsName
	}
	want, wantRestricts, valid := definition(f, text)
	set, err := f.parse("report", text)
	got, restricts := set.values, set.restricts
	switch {
	case valid != (err == nil):
		t.Fatalf("%s %q: %v, want valid: %t", f.name, text, err, valid)
	case err == nil && (got != want || restricts != wantRestricts):
		t.Fatalf("%s %q: %b %t, want %b %t", f.name, text, got, restricts, want, wantRestricts)
	case err != nil && (!strings.HasPrefix(err.Error(), f.title+" ") || !strings.Contains(err.Error(), "want ") && !strings.Contains(err.Error(), "write two")):
		t.Fatalf("%s %q: the error names no field or no remedy: %v", f.name, text, err)
	}
}
