//go:build unix

package integration

import (
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
)

// silent loses all data in both directions, but closes no connection. This is the worst that a network does.
var silent = proxy.Fault{Deaf: true, Mute: true}

// wire returns a new network between clients and the site's server.
func (s *site) wire() *proxy.Proxy {
	s.t.Helper()
	return natstest.NewProxy(s.t, s.url)
}

// over returns the site for programs that reach the server only over the wire.
func (s *site) over(wire *proxy.Proxy) *site {
	far := *s
	far.url = wire.URL()
	return &far
}
