package spec

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
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
