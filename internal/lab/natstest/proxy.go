package natstest

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands between a client and a server. It can lose what the server sends, delay it,
// read nothing from the client, or cut the connections.
type Proxy struct {
	listener net.Listener
	target   string
	deaf     atomic.Bool
	apart    atomic.Bool
	late     atomic.Int64 // in nanoseconds
	stalled  gate

	mu    sync.Mutex
	conns map[net.Conn]bool
	all   sync.WaitGroup
}

// NewProxy starts a proxy in front of the server at url. It ends with its test.
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
		p.stalled.set(false)
		p.cut()
		p.all.Wait()
	})
	return p
}

// URL is the URL of the server through the proxy.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Deafen loses everything that the server sends from now on. What the client sends
// arrives.
func (p *Proxy) Deafen() { p.deaf.Store(true) }

// Part cuts all connections and refuses new ones until Heal.
func (p *Proxy) Part() {
	p.apart.Store(true)
	p.cut()
}

// Delay delays everything that the server sends, and keeps its order.
func (p *Proxy) Delay(late time.Duration) { p.late.Store(int64(late)) }

// Stall reads nothing from the client until Heal, so the client's socket fills up. What the
// server sends arrives.
func (p *Proxy) Stall() { p.stalled.set(true) }

// Heal ends Deafen, Delay, Stall and Part. It cuts connections that have lost bytes, so that
// the client reconnects.
func (p *Proxy) Heal() {
	p.apart.Store(false)
	p.late.Store(0)
	p.stalled.set(false)
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
		p.all.Go(func() { p.pipe(server, draining{client, &p.stalled}) })
		p.all.Go(func() { p.pipe(&delaying{to: client, by: &p.late}, hearing{server, &p.deaf}) })
	}
}

// pipe copies until either side is closed, and then closes both.
func (p *Proxy) pipe(dst io.WriteCloser, src io.Reader) {
	_, _ = io.Copy(struct{ io.Writer }{dst}, struct{ io.Reader }{src}) // sockets would copy without calling the reader
	_ = dst.Close()
}

func (p *Proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// gate blocks pass while it is closed.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed when it opens; nil: it is open
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case shut && g.open == nil:
		g.open = make(chan struct{})
	case !shut && g.open != nil:
		close(g.open)
		g.open = nil
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil {
		<-open
	}
}

// draining reads from the client, and waits while the proxy is stalled.
type draining struct {
	client  net.Conn
	stalled *gate
}

func (d draining) Read(b []byte) (int, error) {
	d.stalled.pass()
	n, err := d.client.Read(b)
	d.stalled.pass() // the stall may have begun during Read
	return n, err
}

// delaying writes to the client after the delay. Only one goroutine uses it.
type delaying struct {
	to    net.Conn
	by    *atomic.Int64
	queue chan chunk // nil: there was no delay so far
	ended chan struct{}
}

// chunk is data and the time at which to write it.
type chunk struct {
	data []byte
	at   time.Time
}

func (d *delaying) Write(b []byte) (int, error) {
	by := time.Duration(d.by.Load())
	if by == 0 && d.queue == nil {
		return d.to.Write(b)
	}
	if d.queue == nil {
		d.queue, d.ended = make(chan chunk, 1<<16), make(chan struct{})
		go d.run()
	}
	d.queue <- chunk{append([]byte(nil), b...), time.Now().Add(by)}
	return len(b), nil
}

func (d *delaying) run() {
	defer close(d.ended)
	for c := range d.queue {
		time.Sleep(time.Until(c.at))
		if _, err := d.to.Write(c.data); err != nil {
			for range d.queue { // so that Write does not block
			}
			return
		}
	}
}

func (d *delaying) Close() error {
	err := d.to.Close()
	if d.queue != nil {
		close(d.queue)
		<-d.ended
	}
	return err
}

// hearing reads from the server. While the proxy is deaf it drops what it reads.
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
