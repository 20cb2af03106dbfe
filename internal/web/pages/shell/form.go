package shell

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/text/printable"
)

// maxTyped bounds a field, in bytes.
const maxTyped = 512 << 10

// Form has the fields of a query or of a form. Its methods read a field, and remember what is
// wrong with it: the page shows that beside the field, with what was typed. A parameter that a
// page did not read is wrong too, since a misspelt filter must not select everything.
type Form struct {
	values url.Values
	read   map[string]bool // the fields that the page has read
	shown  map[string]bool // the fields whose error the page shows itself
	errs   map[string]string
}

func newForm(v url.Values) *Form {
	return &Form{values: v, read: map[string]bool{}, shown: map[string]bool{}, errs: map[string]string{}}
}

// Get returns a field as it was typed, without blanks at its ends. "": it is empty or absent.
func (f *Form) Get(name string) string {
	f.read[name] = true
	s := f.values.Get(name)
	switch {
	case len(s) > maxTyped:
		f.Wrong(name, "it has %d bytes: at most %d are allowed", len(s), maxTyped)
		return ""
	case !utf8.ValidString(s):
		f.Wrong(name, "it is not valid UTF-8")
		return ""
	}
	return strings.TrimSpace(s)
}

// Set replaces what was typed into a field, for the form that is shown again.
func (f *Form) Set(name, value string) { f.values.Set(name, value) }

// All returns all values of a field, such as a group of checkboxes.
func (f *Form) All(name string) []string {
	f.Get(name)
	return f.values[name]
}

// Wrong remembers what is wrong with a field, unless the field has an error already.
func (f *Form) Wrong(name, format string, args ...any) {
	if f.errs[name] == "" {
		f.errs[name] = printable.Clip(fmt.Sprintf(format, args...), 500)
	}
}

// Error returns what is wrong with a field, or "". The caller shows it: the layout shows only the
// errors that no caller has asked for.
func (f *Form) Error(name string) string {
	f.shown[name] = true
	return f.errs[name]
}

// OK reports whether nothing is wrong with the fields that were read so far.
func (f *Form) OK() bool { return len(f.errs) == 0 }

// Complete reports whether nothing is wrong, and the form has no field that was not read. Call it
// after all fields are read, and before an order is carried out.
func (f *Form) Complete() bool {
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !f.read[name] {
			f.Wrong(name, "this page has no parameter %q", clip(name))
		}
	}
	return f.OK()
}

// One returns a field that must have one of these values. The first one is the default.
func (f *Form) One(name string, values ...string) string {
	s := f.Get(name)
	switch {
	case s == "":
		return values[0]
	case slices.Contains(values, s):
		return s
	}
	f.Wrong(name, "%q is not allowed: want one of %s", clip(s), strings.Join(values, ", "))
	return values[0]
}

// timeLayouts are the layouts that Time accepts, apart from RFC 3339.
var timeLayouts = []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"}

// Time returns a time, in UTC, so that equal times are equal keys of maps. A text without an offset is a
// time in the zone loc. It is wrong if the clocks skip it or if it occurs twice: the error names the instants
// that may be meant. A date is the first instant of that day. Zero: the field is empty.
func (f *Form) Time(name string, loc *time.Location) time.Time {
	s := f.Get(name)
	if s == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, s)
	for _, layout := range timeLayouts {
		if err == nil {
			break
		}
		var wall time.Time
		if wall, err = time.Parse(layout, s); err == nil {
			var unclear string
			if at, unclear = instant(wall, loc); unclear != "" && layout != time.DateOnly {
				f.Wrong(name, "%s %s", clip(s), unclear)
				return time.Time{}
			}
		}
	}
	if err != nil || at.Year() < 1970 || at.Year() > 9000 {
		f.Wrong(name, "%q is not a time: want one like 2026-11-21 07:00, in the zone %s, or 2026-11-21T07:00:00Z", clip(s), loc)
		return time.Time{}
	}
	return at.UTC()
}

// instant returns the first instant at which the clocks of loc show a wall time, or the first one after it if
// they skip it. unclear says so, and which instants may be meant, if there is not exactly one.
func instant(wall time.Time, loc *time.Location) (at time.Time, unclear string) {
	offset := func(at time.Time) time.Duration {
		_, seconds := at.In(loc).Zone()
		return time.Duration(seconds) * time.Second
	}
	const far = 30 * time.Hour // more than the largest offset, and than the largest change: a whole day
	early, late := wall.Add(-far), wall.Add(far)
	first, second := wall.Add(-max(offset(early), offset(late))), wall.Add(-min(offset(early), offset(late)))
	isFirst, isSecond := first.Add(offset(first)).Equal(wall), second.Add(offset(second)).Equal(wall)
	form := func(at time.Time) string { return at.In(loc).Format(time.RFC3339) }
	switch {
	case isFirst && isSecond && !first.Equal(second):
		return first, fmt.Sprintf("occurs twice in the zone %s: want %s, the first, or %s, the second", loc, form(first), form(second))
	case isFirst:
		return first, ""
	case isSecond:
		return second, ""
	}
	// In between, the clocks go forward: find the instant.
	low, high := first.Unix(), second.Unix()
	for before := offset(first); high-low > 1; {
		if middle := (low + high) / 2; offset(time.Unix(middle, 0)) == before {
			low = middle
		} else {
			high = middle
		}
	}
	at = time.Unix(high, 0)
	return at, fmt.Sprintf("is skipped by the clocks of the zone %s: the next instant is %s", loc, form(at))
}

// JSON returns a JSON value. Nil: the field is empty.
func (f *Form) JSON(name string) json.RawMessage {
	s := f.Get(name)
	if s == "" {
		return nil
	}
	var v any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		f.Wrong(name, "it is not JSON: %v", err)
		return nil
	}
	return json.RawMessage(s)
}

// Typed returns all fields that were sent, apart from those in which the zone and the theme are chosen.
func (f *Form) Typed() (all []Field) {
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !slices.Contains(ofLayout, name) {
			all = append(all, Field{Name: name, Value: f.Get(name)})
		}
	}
	return all
}

// Stray returns the errors that the page does not show beside a field.
func (f *Form) Stray() []string {
	f.Complete()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(f.errs)) {
		if !f.shown[name] {
			all = append(all, f.errs[name])
		}
	}
	return all
}

// Field is what the template "field" shows.
type Field struct {
	Name, Label, Hint string
	Value, Error      string
}

// Field returns a field with its label, what was typed, and what is wrong with it. The hint says
// what to type.
func (f *Form) Field(name, label, hint string) Field {
	value := f.values.Get(name)
	f.read[name], f.shown[name] = true, true
	if len(value) > maxTyped || !utf8.ValidString(value) {
		value = ""
	}
	return Field{Name: name, Label: label, Hint: hint, Value: value, Error: f.errs[name]}
}

func clip(s string) string { return printable.Clip(s, 80) }
