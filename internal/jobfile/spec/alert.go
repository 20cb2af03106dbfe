package spec

import (
	"errors"
	"net/textproto"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/alertbody"
	"github.com/cronce-io/cronce/job"
)

// alert returns a decoder of a field like on_failure: where alerts of these kinds go (a webhook or a
// NATS subject), and how the body is written. All of that is stored in the registry, so it names
// secrets and does not contain them.
func (j *jobDecoder) alert(set func(*job.Job, *job.Alert), kinds ...job.State) func(value) {
	return func(v value) {
		var a job.Alert
		if j.sound(func() { j.alertOf(v, &a, kinds, nil) }) {
			j.set(v, func(t *job.Job) { set(t, &a) })
		}
	}
}

// late reads on_late: an alert with a bound on the delay of a slot's start.
func (j *jobDecoder) late(v value) {
	var (
		a     job.Alert
		after time.Duration
	)
	bound := []field{{"after", func(v value) { after, _ = j.neededDuration(v) }}}
	if j.sound(func() { j.alertOf(v, &a, []job.State{job.AlertLate}, bound, "after") }) {
		j.set(v, func(t *job.Job) { t.OnLate, t.LateAfter = &a, after })
	}
}

// heartbeat reads a URL, or the name of the environment variable that contains it.
func (j *jobDecoder) heartbeat(v value) {
	var h job.AlertHTTP
	if j.sound(func() { j.alertURL(v, &h, "https://hc-ping.com/UUID") }) {
		j.set(v, func(t *job.Job) { t.Heartbeat = &h })
	}
}

// alertOf reads an alert into a. more are fields that only this one has.
func (j *jobDecoder) alertOf(v value, a *job.Alert, kinds []job.State, more []field, needed ...string) {
	known := j.object(v, append([]field{
		{"http", func(v value) { a.HTTP = j.alertHTTP(v) }},
		{"nats", func(v value) {
			a.NATS = &job.AlertNATS{}
			j.object(v, []field{{"subject", func(v value) { a.NATS.Subject, _ = j.text(v, "alerts.jobs") }}}, "subject")
		}},
		{"format", func(v value) { a.Format, _ = j.oneOf(v, job.AlertFormats()...) }},
		{"template", func(v value) { a.Template = j.template(v, kinds) }},
		{"key", func(v value) { _, a.KeyEnv = j.alertSecret(v, false) }},
	}, more...), needed...)
	if known && (v.member("http") == nil) == (v.member("nats") == nil) {
		j.fail(v.At, "%s: want either http or nats", v.label)
	}
}

// template reads a template of the body, and tries it on samples.
func (j *jobDecoder) template(v value, kinds []job.State) string {
	text, ok := j.text(v, `{"text": {{json .Title}}}`)
	if !ok {
		return ""
	}
	err := alertbody.CheckTemplate(text, codec.Strings(kinds...)...)
	if mistake, ok := errors.AsType[*alertbody.TemplateError](err); ok {
		if at, within := j.within(v.Node, mistake.Line, mistake.Column); within {
			j.fail(at, "%s: %s", v.label, mistake.Message)
			return text
		}
	}
	if err != nil {
		j.fail(v.At, "%s: %v", v.label, err)
	}
	return text
}

// within returns the position in the file of a line and a column of a node's text. It can do that
// only for a block of lines that begins with "|", in which nothing is escaped or folded.
func (d *decoder) within(n *Node, line, column int) (Position, bool) {
	if line == 0 || n.At.Line < 1 || n.At.Line > len(d.Lines) {
		return n.At, false
	}
	// The parser gives a block the position of its mark, which is not always on the first line
	// of its text.
	header := n.At.Line
	if !blockMark.MatchString(d.Lines[header-1]) && header > 1 {
		header--
	}
	at := header + line
	if !blockMark.MatchString(d.Lines[header-1]) || at > len(d.Lines) {
		return n.At, false
	}
	indent := 0
	for _, text := range d.Lines[header:] {
		if trimmed := strings.TrimLeft(text, " "); trimmed != "" {
			indent = len(text) - len(trimmed)
			break
		}
	}
	text := []rune(d.Lines[at-1])
	if column == 0 {
		return Position{at, indent + 1}, true
	}
	before := d.Lines[at-1][:min(len(d.Lines[at-1]), indent+column-1)]
	return Position{at, min(utf8.RuneCountInString(before), len(text)) + 1}, true
}

// blockMark matches the end of the line before a block of text whose lines are kept as they are.
var blockMark = regexp.MustCompile(`:\s+(&\S+\s+)?\|[-+]?\s*(#.*)?$`)

func (j *jobDecoder) alertHTTP(v value) *job.AlertHTTP {
	var h job.AlertHTTP
	j.object(v, []field{
		{"url", func(v value) { j.alertURL(v, &h, "https://example.com/alerts") }},
		{"headers", func(v value) {
			if !j.want(v, Mapping, "a mapping of names to {env: NAME}") {
				return
			}
			for _, m := range v.Members {
				header := job.AlertHeader{Name: textproto.CanonicalMIMEHeaderKey(m.Name)}
				header.Prefix, header.Env = j.alertSecret(value{m.Value, v.label + "." + m.Name}, true)
				h.Headers = append(h.Headers, header)
			}
		}},
	}, "url")
	return &h
}

func (j *jobDecoder) alertURL(v value, h *job.AlertHTTP, example string) {
	if v.Kind == Mapping {
		_, h.URLEnv = j.alertSecret(v, false)
		return
	}
	h.URL, _ = j.text(v, example)
}

// alertSecret reads the name of the environment variable that contains a value. If prefixed is true,
// the file may also set a prefix of the value.
func (j *jobDecoder) alertSecret(v value, prefixed bool) (prefix, env string) {
	const example = `{env: ` + job.AlertEnv + `TOKEN}: every login that may read the registry can read a value in the file`
	fields := []field{{"env", func(v value) { env, _ = j.text(v, job.AlertEnv+"TOKEN") }}}
	if prefixed {
		fields = append(fields, field{"prefix", func(v value) { prefix, _ = j.text(v, "Bearer ") }})
	}
	if j.want(v, Mapping, example) {
		j.object(v, fields, "env")
	}
	return prefix, env
}
