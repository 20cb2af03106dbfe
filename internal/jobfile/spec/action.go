package spec

import (
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Action is what a worker does for a slot. One of Exec, HTTP and NATS is set, or none if
// the job has no action (see WithoutActions).
type Action struct {
	Exec *Exec
	HTTP *HTTP
	NATS *NATS
}

// NATS is a request over the node's own connection.
type NATS struct {
	// Subject has no wildcards and no empty tokens.
	Subject string

	// Timeout bounds one request. Zero: the file does not set it.
	Timeout time.Duration
}

// MaxSubject is the longest subject, in bytes. It is far below the longest protocol line: if a line
// is longer, the server closes the connection.
const MaxSubject = 1024

// decodeAction reads an action, of which there must be exactly one.
func (j *jobDecoder) decodeAction(v value) {
	var e Exec
	program := j.execFields(&e)
	kinds := []field{
		program[0],
		{"http", func(v value) { j.action.HTTP = j.http(v) }},
		{"nats", func(v value) { j.action.NATS = j.nats(v) }},
	}
	known := j.object(v, slices.Concat(program, kinds[1:]))
	var all, ways []string
	for _, kind := range kinds {
		all = append(all, kind.name)
		if v.member(kind.name) != nil {
			ways = append(ways, kind.name)
		}
	}
	switch {
	case known && len(ways) == 0:
		j.fail(v.At, "action: it is empty: want %s", codec.Alternatives(all...))
	case len(ways) > 1:
		j.fail(v.At, "action: %s at once: want one of them", strings.Join(ways, " and "))
	}
	if len(e.Args) > 0 {
		j.action.Exec = &e
	}
	for _, about := range program[1:] {
		if m := v.member(about.name); known && m != nil && v.member("exec") == nil {
			j.fail(m.At, "action.%s: it applies only to exec, which is missing", about.name)
		}
	}
}

func (j *jobDecoder) nats(v value) *NATS {
	var n NATS
	j.object(v, []field{
		{"subject", func(v value) { n.Subject = j.subject(v) }},
		{"timeout", func(v value) { n.Timeout, _ = j.duration(v) }},
	}, "subject")
	return &n
}

// subject reads a subject to publish to. The server accepts a subject with wildcards but takes them
// literally, so no service would receive such a request.
func (d *decoder) subject(v value) string {
	const example = "svc.report"
	s, ok := d.text(v, example)
	switch {
	case !ok:
		return ""
	case len(s) > MaxSubject:
		d.fail(v.At, "%s: %d bytes, at most %d", v.label, len(s), MaxSubject)
	case strings.ContainsAny(s, " \t\r\n\f\x00"):
		d.fail(v.At, "%s %q: want no spaces in it, like %s", v.label, Clip(s), example)
	default:
		for token := range strings.SplitSeq(s, ".") {
			switch token {
			case "":
				d.fail(v.At, "%s %q: it begins or ends with a dot, or has two in a row: want one like %s", v.label, Clip(s), example)
				return ""
			case "*", ">":
				d.fail(v.At, "%s %q: it has a wildcard, and a request goes to one subject: want one like %s", v.label, Clip(s), example)
				return ""
			}
		}
		return s
	}
	return ""
}
