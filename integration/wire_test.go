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

// wire is the network between a client and a server: it can be slow, silent or
// cut.
type wire struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
}

// newWire is a wire to the server at upstream that clients find at listen.
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

// over is the site as programs see it that reach the server over the wire only.
func (s *site) over(w *wire) *site {
	far := *s
	far.url = "nats://" + w.proxy.Listen
	return &far
}

// wire is a new wire to the site's server.
func (s *site) wire() *wire {
	s.t.Helper()
	return newWire(s.t, "127.0.0.1:0", strings.TrimPrefix(s.url, "nats://"))
}

// slow delays what clients say and what the server says.
func (w *wire) slow(there, back time.Duration) {
	w.t.Helper()
	w.add("latency", "upstream", fmt.Sprintf(`"latency": %d`, there.Milliseconds()))
	w.add("latency", "downstream", fmt.Sprintf(`"latency": %d`, back.Milliseconds()))
}

// silence loses all that is said, both ways, and cuts no connection: the worst
// that a network does.
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

// heal makes the wire as good as new. Connections on which something was lost are
// cut.
func (w *wire) heal() {
	w.t.Helper()
	w.proxy.Toxics.ResetToxics(w.t.Context())
	if err := w.proxy.Start(); err != nil && err != toxiproxy.ErrProxyAlreadyStarted {
		w.t.Fatal(err)
	}
}
