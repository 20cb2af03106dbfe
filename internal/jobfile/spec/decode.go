package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is a node with its name in error messages, like "retry.attempts".
type value struct {
	*Node
	label string
}

// field is one member that an object may have.
type field struct {
	name   string
	decode func(value)
}

// decoder reads nodes as Go values. Each error says what would be valid.
type decoder struct {
	*Source
	prefix     string // `job "report": `, before every message
	actionless bool   // jobs may be without an action
}

func (d *decoder) fail(at Position, format string, args ...any) {
	d.Source.Fail(at, "%s%s", d.prefix, fmt.Sprintf(format, args...))
}

// want reports whether v is of kind k. If it is not, want adds an error, unless v is Broken. example
// shows a valid value.
func (d *decoder) want(v value, k kind, example string) bool {
	if v.Kind != k && v.Kind != Broken {
		label := v.label
		if label != "" {
			label += ": "
		}
		d.fail(v.At, "%swant %s, got %s", label, example, v.describe())
	}
	return v.Kind == k
}

func (n *Node) describe() string {
	switch n.Kind {
	case Number, Boolean:
		return n.Kind.String() + " (" + Clip(n.Scalar) + ")"
	case Text:
		return strconv.Quote(Clip(n.Scalar))
	}
	return n.Kind.String()
}

// object decodes each member of v by its field, in the order of fields. It reports members that are
// no fields, and needed fields that are missing. It returns true if all members are fields. If it
// returns false, a field that is missing may be a misspelled one, so neither object nor its callers
// report it.
func (d *decoder) object(v value, fields []field, needed ...string) bool {
	if !d.want(v, Mapping, "a mapping of fields") {
		return false
	}
	path := v.label
	if path != "" {
		path += "."
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
		if m := v.member(f.name); m != nil {
			f.decode(value{m.Value, path + f.name})
		}
	}
	known := true
	for _, m := range v.Members {
		if !slices.Contains(names, m.Name) {
			known = false
			d.fail(m.At, "unknown field %q: %s", Clip(path+m.Name), suggestField(m.Name, names))
		}
	}
	for _, name := range needed {
		if known && v.member(name) == nil {
			d.fail(v.At, "%s: no %s", v.label, name)
		}
	}
	return known
}

// sound runs a decoder, and reports whether it found no mistake.
func (d *decoder) sound(decode func()) bool {
	before := len(d.errs)
	decode()
	return len(d.errs) == before
}

// member returns the member of that name, or nil.
func (n *Node) member(name string) *Member {
	for i := range n.Members {
		if n.Members[i].Name == name {
			return &n.Members[i]
		}
	}
	return nil
}

// list decodes each item, with the labels label[0], label[1] and so on.
func (d *decoder) list(v value, example string, decode func(value)) {
	if !d.want(v, List, example) {
		return
	}
	for i, item := range v.Items {
		decode(value{item, fmt.Sprintf("%s[%d]", v.label, i)})
	}
}

// text reads text that is not empty.
func (d *decoder) text(v value, example string) (string, bool) {
	if v.Kind == Number || v.Kind == Boolean {
		d.fail(v.At, "%s: want text like %q, got %s; if that is meant, quote it: \"%s\"", v.label, example, v.describe(), Clip(v.Scalar))
		return "", false
	}
	if !d.want(v, Text, "text like "+strconv.Quote(example)) {
		return "", false
	}
	if v.Scalar == "" {
		d.fail(v.At, "%s: it is empty: want text like %q", v.label, example)
		return "", false
	}
	return v.Scalar, true
}

// duration reads Go's notation. Zero is rejected, because package job would take it for the default.
func (d *decoder) duration(v value) (time.Duration, bool) {
	return d.durationOr(v, "; leave the field out for its default")
}

// neededDuration is duration for a field without a default.
func (d *decoder) neededDuration(v value) (time.Duration, bool) { return d.durationOr(v, "") }

// durationOr is duration. hint follows the error about zero.
func (d *decoder) durationOr(v value, hint string) (time.Duration, bool) {
	const example = "a duration like 30s, 10m or 1h30m"
	if !d.want(v, Text, example) {
		return 0, false
	}
	dur, err := time.ParseDuration(v.Scalar)
	days, isDays := strings.CutSuffix(v.Scalar, "d")
	switch n, derr := strconv.Atoi(days); {
	case isDays && derr == nil && n > 0 && n < 10_000:
		d.fail(v.At, "%s %q: days are not a unit here: want %dh", v.label, v.Scalar, 24*n)
	case err != nil:
		d.fail(v.At, "%s %q: want %s", v.label, Clip(v.Scalar), example)
	case dur <= 0:
		d.fail(v.At, "%s %q: want more than zero%s", v.label, v.Scalar, hint)
	default:
		return dur, true
	}
	return 0, false
}

// count reads a whole number of at least 1. Zero is rejected for the same reason as in duration.
func (d *decoder) count(v value) (int, bool) {
	const example = "a whole number from 1"
	if !d.want(v, Number, example) {
		return 0, false
	}
	n, err := strconv.Atoi(v.Scalar)
	if err != nil || n < 1 {
		d.fail(v.At, "%s %s: want %s", v.label, Clip(v.Scalar), example)
		return 0, false
	}
	return n, true
}

// size reads a number of bytes in KiB, the only unit.
func (d *decoder) size(v value) (int, bool) {
	const example = "a size like 16KiB"
	if !d.want(v, Text, example) {
		return 0, false
	}
	digits, kib := strings.CutSuffix(v.Scalar, "KiB")
	n, err := strconv.ParseUint(digits, 10, 20)
	if !kib || err != nil || n == 0 {
		d.fail(v.At, "%s %q: want %s", v.label, Clip(v.Scalar), example)
		return 0, false
	}
	return int(n) << 10, true
}

// instant reads an instant in RFC 3339. Other notations can be ambiguous.
func (d *decoder) instant(v value) (time.Time, bool) {
	const example = "2026-12-31T23:00:00Z"
	s, ok := d.text(v, example)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, s)
	switch {
	case err != nil:
		d.fail(v.At, "%s %q: want an instant with its offset, like %s", v.label, Clip(s), example)
	case t.Nanosecond() != 0:
		d.fail(v.At, "%s %q: want whole seconds", v.label, s)
	case t.IsZero():
		d.fail(v.At, "%s %q: leave the field out for no bound", v.label, s)
	default:
		return t.UTC(), true
	}
	return time.Time{}, false
}

// flag reads true or false.
func (d *decoder) flag(v value) bool {
	return d.want(v, Boolean, "true or false") && v.Scalar == "true"
}

func (d *decoder) oneOf(v value, words ...string) (string, bool) {
	s, ok := d.text(v, words[0])
	if ok && !slices.Contains(words, s) {
		d.fail(v.At, "%s %q: %s", v.label, Clip(s), suggest(s, words))
		return "", false
	}
	return s, ok
}
