package torture

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// proxy stands between one process of the fleet and the servers. The process's dialer names
// a server on the first line of each connection. So contexts, credentials, TLS and servers
// that the client learns of later work through the proxy, and no connection goes around it.
type proxy struct {
	listener net.Listener

	mu    sync.Mutex
	fault link
	conns map[net.Conn]bool
	woken chan struct{} // closed and replaced when fault changes
	lost  bool          // fault has lost a message
	all   sync.WaitGroup
}

// link is what is wrong with the connections.
type link struct {
	// apart: there is no connection, and none can be made.
	apart bool

	// delay holds back every byte, in both directions.
	delay time.Duration

	// late holds back every byte from the servers.
	late time.Duration

	// clogged: connections stay open, and nothing is read from either side.
	clogged bool

	// hold keeps everything from the servers until the fault is over.
	hold bool

	// deaf loses everything from the servers. The connection cannot be used afterwards.
	deaf bool

	// sever waits for the client to send these bytes. If then is nil, it cuts the
	// connection before they are sent. Otherwise it sends them, and then takes effect.
	sever []byte
	then  *link

	// lose drops each message that the client publishes to a subject that begins so.
	lose []byte
}

func newProxy() (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &proxy{listener: l, conns: map[net.Conn]bool{}, woken: make(chan struct{})}
	p.all.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	_ = p.listener.Close()
	p.set(link{apart: true})
	p.all.Wait()
}

// set changes the fault. It cuts the connections if the new fault allows none, or if the
// old one has lost bytes.
func (p *proxy) set(fault link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := fault.apart || p.fault.deaf
	p.fault, p.lost = fault, false
	close(p.woken)
	p.woken = make(chan struct{})
	if cut {
		p.cut()
	}
}

// cut closes all connections. p.mu is held.
func (p *proxy) cut() {
	for c := range p.conns {
		_ = c.Close()
	}
}

// now returns the fault, and a channel that is closed when the fault changes.
func (p *proxy) now() (link, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.woken
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	if tcp, ok := client.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(socketBuffer)
	}
	from := bufio.NewReader(client)
	_ = client.SetReadDeadline(time.Now().Add(5 * time.Second))
	target, err := from.ReadString('\n')
	if err != nil {
		return
	}
	_ = client.SetReadDeadline(time.Time{})
	server, err := net.DialTimeout("tcp", strings.TrimSpace(target), 2*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	if p.fault.apart {
		p.mu.Unlock()
		return
	}
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
		delete(p.conns, server)
	}()
	var both sync.WaitGroup
	both.Go(func() {
		p.pipe(server, from, func(l link) time.Duration { return l.delay }, p.asked)
		server.Close()
		client.Close()
	})
	both.Go(func() {
		p.pipe(client, server, func(l link) time.Duration { return l.delay + l.late }, p.answered)
		server.Close()
		client.Close()
	})
	both.Wait()
}

// pipe copies from one side to the other, with the delay, until one of them is closed. pass
// returns what to write of what was read, and false to end.
func (p *proxy) pipe(to io.Writer, from io.Reader, delay func(link) time.Duration, pass func([]byte) ([]byte, bool)) {
	type chunk struct {
		data []byte
		at   time.Time
	}
	chunks := make(chan chunk, 1024)
	var sender sync.WaitGroup
	broken := make(chan struct{})
	sender.Go(func() {
		defer close(broken)
		for c := range chunks {
			if wait := time.Until(c.at); wait > 0 {
				time.Sleep(wait)
			}
			data, goOn := pass(c.data)
			if _, err := to.Write(data); err != nil || !goOn {
				return
			}
		}
	})
	defer sender.Wait()
	defer close(chunks)
	for {
		p.untilClear()
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		p.untilClear() // the fault may have begun while this waited in Read
		if n > 0 {
			fault, _ := p.now()
			select {
			case chunks <- chunk{buffer[:n], time.Now().Add(delay(fault))}:
			case <-broken:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// untilClear waits while the fault is clogged.
func (p *proxy) untilClear() {
	fault, changed := p.now()
	for fault.clogged {
		<-changed
		fault, changed = p.now()
	}
}

// answered passes on what a server sends, unless the fault holds it or loses it.
func (p *proxy) answered(data []byte) ([]byte, bool) {
	fault, changed := p.now()
	for fault.hold {
		<-changed
		fault, changed = p.now()
	}
	if fault.deaf {
		return nil, true
	}
	return data, true
}

// asked passes on what a client sends, without the messages that the fault loses. If the
// data has the bytes to sever, asked cuts it before the protocol line that has them, or lets
// the next fault take effect.
func (p *proxy) asked(data []byte) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault.lose != nil {
		rest := without(data, p.fault.lose)
		p.lost = p.lost || len(rest) < len(data)
		return rest, true
	}
	i := -1
	if p.fault.sever != nil {
		i = bytes.Index(data, p.fault.sever)
	}
	if i < 0 {
		return data, true
	}
	if p.fault.then != nil {
		p.fault = *p.fault.then
		return data, true
	}
	p.fault = link{}
	return data[:max(bytes.LastIndex(data[:i], []byte("\r\n"))+2, 0)], false
}

// without returns data without the messages to subjects with this prefix. A message that
// data does not hold as a whole stays.
func without(data, prefix []byte) []byte {
	verb := append([]byte("PUB "), prefix...)
	var rest []byte
	for {
		i := bytes.Index(data, verb)
		if i < 0 {
			return append(rest, data...)
		}
		line, after, _ := bytes.Cut(data[i:], []byte("\r\n"))
		fields := bytes.Fields(line)
		size, err := strconv.Atoi(string(fields[len(fields)-1]))
		if size += len("\r\n"); err != nil || size > len(after) {
			rest, data = append(rest, data[:i+len(verb)]...), data[i+len(verb):]
			continue
		}
		rest, data = append(rest, bytes.TrimSuffix(data[:i], []byte("H"))...), after[size:]
	}
}

// hasLost reports whether the fault has lost a message.
func (p *proxy) hasLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// severed reports whether the client has sent the bytes to sever.
func (p *proxy) severed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault.sever == nil
}

// socketBuffer is the size of the buffers for what a process writes. It is so small that a
// clogged socket blocks the writer within a second or two.
const socketBuffer = 16 << 10

// proxyDialer connects through the proxy at this address.
type proxyDialer string

// Dial satisfies nats.CustomDialer.
func (d proxyDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(context.Background(), network, string(d))
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(socketBuffer)
	}
	if _, err := fmt.Fprintf(conn, "%s\n", address); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
