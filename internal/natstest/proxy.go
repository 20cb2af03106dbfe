package natstest

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy stands between a client and a server, and can lose what the server
// says, or keep the two apart.
type Proxy struct {
	listener net.Listener
	target   string
	deaf     atomic.Bool
	apart    atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]bool
	all   sync.WaitGroup
}

// NewProxy starts a proxy in front of the server at url, ended with its test.
func NewProxy(t testing.TB, url string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: strings.TrimPrefix(url, "nats://"), conns: map[net.Conn]bool{}}
	p.all.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.all.Wait()
	})
	return p
}

// URL is where clients find the server through the proxy.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Deafen loses everything that the server says from now on; what the client
// says arrives.
func (p *Proxy) Deafen() { p.deaf.Store(true) }

// Part cuts all connections, and every new one, until Heal.
func (p *Proxy) Part() {
	p.apart.Store(true)
	p.cut()
}

// Heal ends Deafen and Part. Connections that have lost bytes are cut, so that
// the client connects anew.
func (p *Proxy) Heal() {
	p.apart.Store(false)
	if p.deaf.Swap(false) {
		p.cut()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || p.apart.Load() {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.all.Go(func() { p.pipe(server, client) })
		p.all.Go(func() { p.pipe(client, hearing{server, &p.deaf}) })
	}
}

// pipe copies until either side ends, and then ends both.
func (p *Proxy) pipe(dst net.Conn, src io.Reader) {
	_, _ = io.Copy(dst, src)
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = dst.Close()
	delete(p.conns, dst)
}

func (p *Proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// hearing reads from the server, or, while deaf, as if it said nothing.
type hearing struct {
	server net.Conn
	deaf   *atomic.Bool
}

func (h hearing) Read(b []byte) (int, error) {
	for {
		n, err := h.server.Read(b)
		if err != nil || !h.deaf.Load() {
			return n, err
		}
	}
}
