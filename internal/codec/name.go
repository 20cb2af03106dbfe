package codec

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// ValidateName checks the names of jobs, queues, nodes or namespaces: 1 to 64 characters of
// A-Z a-z 0-9 _ and -. Names are parts of subjects, keys and consumer names, where a dot, a
// star or a space has a meaning. what names the kind of name in the error ("job", "queue").
func ValidateName(what string, names ...string) error {
	notPlain := func(r rune) bool { return r >= utf8.RuneSelf || !Plain(byte(r)) }
	for _, name := range names {
		if name == "" || len(name) > 64 || strings.ContainsFunc(name, notPlain) {
			return fmt.Errorf("%w %s name %q: want 1 to 64 characters of A-Z a-z 0-9 _ -", ErrInvalid, what, Clip(name))
		}
	}
	return nil
}

// ValidateJobFilter checks the job's name in a filter. An empty name selects all jobs.
func ValidateJobFilter(name string) error {
	if name == "" {
		return nil
	}
	return ValidateName("job", name)
}

// Clip cuts a text that an error quotes to 80 bytes.
func Clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

// ClipTo cuts s to most bytes and appends "...". A text that it has cut before stays unchanged.
func ClipTo(s string, most int) string {
	if len(s) <= most+len("...") {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// OneLine returns the text of an error with its lines joined.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Plain reports whether c may be part of a name.
func Plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// Reoffer matches what follows the slot ID in the Msg-Id of a slot that is offered again.
var Reoffer = regexp.MustCompile(`/r[0-9]+$`)

// ParseURL reads the URL of a webhook. Its errors do not quote it, since it may hold a
// secret.
func ParseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || len(s) > 4<<10:
		return nil, errors.New("want a URL like https://example.com/alerts")
	case u.User != nil:
		return nil, errors.New("it holds a user or a password, which the registry would show: use headers, with {env: NAME}")
	case strings.Contains(s, "#"):
		return nil, errors.New("a fragment is never sent: leave out what begins with #")
	}
	return u, nil
}

// WithoutLogin removes from a URL what stands before the @: a user and a password, or a token. It also
// takes a text that cannot be parsed as a URL.
func WithoutLogin(s string) string {
	begin := 0
	if i := strings.Index(s, "://"); i >= 0 {
		begin = i + len("://")
	}
	return s[:begin] + s[begin+strings.LastIndexByte(s[begin:], '@')+1:]
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// protocolHeaders belong to the connection or to the framing of the message. A job that
// set them could make the receiver read another message than the one that was sent.
var protocolHeaders = []string{
	"Connection", "Content-Length", "Expect", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// ownHeaders are set for each slot, as are all headers that begin with Cronce-.
var ownHeaders = []string{"Idempotency-Key", "Traceparent", "Tracestate"}

// RefusedHeader returns why a job or an alert may not set the header with this name. It
// returns "" if they may.
func RefusedHeader(name string) string {
	is := func(other string) bool { return strings.EqualFold(name, other) }
	switch {
	case !headerName.MatchString(name):
		return "is not a valid header name: want letters, digits and -"
	case is("Host"):
		return "is part of the url: put it there"
	case slices.ContainsFunc(protocolHeaders, is):
		return "belongs to the connection: leave it out"
	case slices.ContainsFunc(ownHeaders, is) || len(name) >= 7 && strings.EqualFold(name[:7], "Cronce-"):
		return "is set for each slot: leave it out"
	}
	return ""
}
