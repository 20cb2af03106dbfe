package auth

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
)

// proxy identifies users by a header that a trusted proxy sets.
type proxy struct {
	header string
	from   []netip.Prefix
}

func (p proxy) user(r *http.Request) (string, error) {
	names := r.Header.Values(p.header)
	if len(names) == 0 {
		return "", nil
	}
	if !p.trusts(r.RemoteAddr) {
		return "", fmt.Errorf("header %s: %s is not a trusted proxy", p.header, r.RemoteAddr)
	}
	if len(names) > 1 {
		return "", errors.New("header " + p.header + " is given twice: the proxy must replace what a client sends")
	}
	return names[0], nil
}

func (p proxy) trusts(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(p.from, func(from netip.Prefix) bool { return from.Contains(at.Addr().Unmap()) })
}
