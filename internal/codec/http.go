package codec

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

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
