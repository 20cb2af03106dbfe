//go:build unix

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// wire is a network between clients and a server. It can be slow, silent or cut.
type wire struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
}

// newWire returns a wire to the server at upstream. Clients connect to listen.
func newWire(t *testing.T, listen, upstream string) *wire {
	t.Helper()
	log := zerolog.Nop()
	w := &wire{t: t, proxy: toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), log), t.Name(), listen, upstream)}
	if err := w.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.proxy.Stop)
	return w
}

// over returns the site for programs that reach the server only over the wire.
func (s *site) over(w *wire) *site {
	far := *s
	far.url = "nats://" + w.proxy.Listen
	return &far
}

// wire returns a new wire to the site's server.
func (s *site) wire() *wire {
	s.t.Helper()
	return newWire(s.t, "127.0.0.1:0", strings.TrimPrefix(s.url, "nats://"))
}

// slow delays what clients send, and what the server sends.
func (w *wire) slow(there, back time.Duration) {
	w.t.Helper()
	w.add("latency", "upstream", fmt.Sprintf(`"latency": %d`, there.Milliseconds()))
	w.add("latency", "downstream", fmt.Sprintf(`"latency": %d`, back.Milliseconds()))
}

// silence loses all data in both directions, but closes no connection. This is the worst that a network does.
func (w *wire) silence() {
	w.t.Helper()
	w.add("timeout", "upstream", `"timeout": 0`)
	w.add("timeout", "downstream", `"timeout": 0`)
}

func (w *wire) add(toxic, stream, attributes string) {
	w.t.Helper()
	_, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
		`{"name": %q, "type": %q, "stream": %q, "attributes": {%s}}`, toxic+" "+stream, toxic, stream, attributes)))
	if err != nil {
		w.t.Fatal(err)
	}
}

// heal ends all faults. Connections on which data was lost are closed.
func (w *wire) heal() {
	w.t.Helper()
	w.proxy.Toxics.ResetToxics(w.t.Context())
	if err := w.proxy.Start(); err != nil && err != toxiproxy.ErrProxyAlreadyStarted {
		w.t.Fatal(err)
	}
}
