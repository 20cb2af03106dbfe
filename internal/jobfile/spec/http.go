package spec

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// HTTP is a request to a service.
type HTTP struct {
	// URL is absolute, http or https. It may contain a user and a password, so it must not be
	// shown as it is.
	URL *url.URL

	// Method is POST unless the file says otherwise.
	Method string

	// Headers are sent in addition to those about the slot. No two have the same name.
	Headers []Header

	// Timeout bounds one request. Zero: the file does not set it.
	Timeout time.Duration

	// Ready is a URL that answers with 2xx while the service can take work. Nil: the service counts
	// as ready.
	Ready *url.URL
}

// Methods returns the methods that a request may have.
func Methods() []string {
	return []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodGet, http.MethodHead}
}

const urlExample = "http://127.0.0.1:8080/jobs/report"

func (j *jobDecoder) http(v value) *HTTP {
	h := HTTP{Method: http.MethodPost}
	j.object(v, []field{
		{"url", func(v value) { h.URL = j.url(v, urlExample) }},
		{"method", func(v value) {
			if s, ok := j.oneOf(v, Methods()...); ok {
				h.Method = s
			}
		}},
		{"headers", func(v value) { h.Headers = j.headers(v) }},
		{"timeout", func(v value) { h.Timeout, _ = j.duration(v) }},
		{"ready", func(v value) { h.Ready = j.url(v, "http://127.0.0.1:8080/ready") }},
	}, "url")
	return &h
}

// url reads a URL. It returns nil if an error was reported.
func (d *decoder) url(v value, example string) *url.URL {
	s, ok := d.text(v, example)
	if !ok {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || !isPort(u.Port()):
		d.fail(v.At, "%s %q: want a URL like %s", v.label, Clip(s), example)
	case strings.Contains(s, "#"):
		d.fail(v.At, "%s: a fragment is never sent: leave out what begins with #", v.label)
	default:
		return u
	}
	return nil
}

func isPort(s string) bool {
	if s == "" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// Header is a header of a request. One of Value, Env and File is set.
type Header struct {
	// Name is in canonical case. Headers that Cronce or HTTP sets are not allowed.
	Name string

	// Value is the value in the job file. It is no secret.
	Value string

	// Env names an environment variable, or File a file, that contains the value. The value is a
	// secret and must not be shown.
	Env, File string

	// Prefix is put before the value of Env or File, like "Bearer ".
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
			d.fail(m.At, "%s: %q is listed twice: header names are not case-sensitive", v.label, name)
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
		prefix := field{"prefix", func(v value) {
			if s, ok := d.text(v, "Bearer "); ok && d.headerText(v, s) {
				h.Prefix = s
			}
		}}
		h.Env, h.File, ok = d.secret(v, headerExample, prefix)
		return h, ok
	case List, Null:
		return h, d.want(v, Text, headerExample)
	}
	h.Value, ok = d.text(v, "text/plain")
	return h, ok && d.headerText(v, h.Value)
}

// headerText reports an error if the text is too long for a header, or has a control character, which
// could end the header and begin another one.
func (d *decoder) headerText(v value, s string) bool {
	switch {
	case len(s) > MaxHeader:
		d.fail(v.At, "%s: %d bytes, at most %d", v.label, len(s), MaxHeader)
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		d.fail(v.At, "%s: it has a line break or another control character, which a header cannot have", v.label)
	default:
		return true
	}
	return false
}
