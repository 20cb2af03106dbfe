package spec

import (
	"net/textproto"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
)

// Header is one that is sent with a request. Of Value, Env and File one is set.
type Header struct {
	// Name is in canonical case, and none that Cronce or the protocol sets.
	Name string

	// Value stands in the file, for everybody to see.
	Value string

	// Env names an environment variable, File a file: secrets, that must not be
	// shown.
	Env, File string

	// Prefix stands before what comes from Env or File: "Bearer ".
	Prefix string
}

// MaxHeader is the longest value of a header, in bytes.
const MaxHeader = 8 << 10

const headerExample = `text, {env: NAME} or {file: PATH}, like {prefix: "Bearer ", env: API_TOKEN}`

func (d *decoder) headers(v value) []Header {
	if !d.want(v, Mapping, "a mapping of names to text") {
		return nil
	}
	var headers []Header
	for _, m := range v.Members {
		name := textproto.CanonicalMIMEHeaderKey(m.Name)
		if why := codec.RefusedHeader(name); why != "" {
			d.fail(m.At, "%s: header %q %s", v.label, Clip(m.Name), why)
			continue
		}
		if slices.ContainsFunc(headers, func(h Header) bool { return h.Name == name }) {
			d.fail(m.At, "%s: %q is here twice: upper and lower case make no difference", v.label, name)
			continue
		}
		if h, ok := d.header(value{m.Value, v.label + "." + m.Name}); ok {
			h.Name = name
			headers = append(headers, h)
		}
	}
	return headers
}

func (d *decoder) header(v value) (h Header, ok bool) {
	switch v.Kind {
	case Mapping:
		return d.secret(v)
	case List, Null:
		return h, d.want(v, Text, headerExample)
	}
	h.Value, ok = d.text(v, "text/plain")
	return h, ok && d.headerText(v, h.Value)
}

// secret reads where a value is to be found.
func (d *decoder) secret(v value) (h Header, ok bool) {
	before := len(d.errs)
	known := d.object(v, []field{
		{"prefix", func(v value) {
			if s, ok := d.text(v, "Bearer "); ok && d.headerText(v, s) {
				h.Prefix = s
			}
		}},
		{"env", func(v value) {
			if s, ok := d.text(v, "API_TOKEN"); ok && strings.ContainsAny(s, "=\x00 \t\n") {
				d.fail(v.At, "%s %q: want the name of an environment variable, like API_TOKEN", v.label, Clip(s))
			} else {
				h.Env = s
			}
		}},
		{"file", func(v value) {
			if s, ok := d.text(v, "/run/secrets/token"); ok && strings.ContainsRune(s, 0) {
				d.fail(v.At, "%s: it holds a zero byte, which no file's name has", v.label)
			} else {
				h.File = s
			}
		}},
	})
	if known && (v.member("env") == nil) == (v.member("file") == nil) {
		d.fail(v.At, "%s: want %s", v.label, headerExample)
	}
	return h, len(d.errs) == before
}

// headerText refuses what would end the header and begin another one.
func (d *decoder) headerText(v value, s string) bool {
	switch {
	case len(s) > MaxHeader:
		d.fail(v.At, "%s: %d bytes, at most %d", v.label, len(s), MaxHeader)
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		d.fail(v.At, "%s: it holds a line break or another control character, which no header can", v.label)
	default:
		return true
	}
	return false
}
