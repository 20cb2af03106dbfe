package natstest

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/proxy"
)

// Proxy stands between a client and a server. A new fault ends the one before.
type Proxy struct{ p *proxy.Proxy }

// NewProxy starts a proxy in front of the server at url. It ends with its test.
func NewProxy(t testing.TB, url string) *Proxy {
	t.Helper()
	p, err := proxy.To(strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return &Proxy{p}
}

// URL is the URL of the server through the proxy.
func (p *Proxy) URL() string { return "nats://" + p.p.Address() }

// Deafen loses everything that the server sends from now on. The server still receives what the
// client sends.
func (p *Proxy) Deafen() { p.p.Set(proxy.Fault{Deaf: true}) }

// Cut cuts all connections, and refuses new ones until Heal.
func (p *Proxy) Cut() { p.p.Set(proxy.Fault{Cut: true}) }

// Delay delays everything that the server sends, and keeps its order.
func (p *Proxy) Delay(late time.Duration) { p.p.Set(proxy.Fault{Late: late}) }

// Slow delays each message that the server sends, one after another, like storage that syncs each
// write.
func (p *Proxy) Slow(each time.Duration) { p.p.Set(proxy.Fault{EachLate: each}) }

// Stall reads nothing from the client until Heal, so the client's socket fills up. The client still
// receives what the server sends.
func (p *Proxy) Stall() { p.p.Set(proxy.Fault{Stalled: true}) }

// Heal ends the fault. It cuts connections that have lost bytes, so that the client reconnects.
func (p *Proxy) Heal() { p.p.Set(proxy.Fault{}) }
