package auth

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// hosts are the names that a server serves, in lower case.
type hosts map[string]bool

func newHosts(listen string, at *url.URL) hosts {
	h := hosts{"localhost": true}
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" {
		h[strings.ToLower(host)] = true
	}
	if at != nil {
		h[strings.ToLower(at.Hostname())] = true
	}
	return h
}

// serve reports whether this server answers requests with this Host. It answers those with any IP
// address.
func (h hosts) serve(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"), "."))
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return h[name]
}
