// Package proxy stands between a client and NATS servers. It cuts, delays, holds back and loses
// what they send. Only tests and the torture test use it.
package proxy

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

// Proxy stands between clients and servers. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string // the server; empty: the first line of each connection names it

	mu    sync.Mutex
	fault Fault
	conns map[net.Conn]bool
	woken chan struct{} // closed and replaced when fault changes
	lost  bool          // the fault Lose has dropped a message
	all   sync.WaitGroup
}

// Fault is what is wrong with the connections. The zero Fault is none.
type Fault struct {
	// Cut: there is no connection, and none can be made.
	Cut bool

	// Delay holds back every byte, in both directions.
	Delay time.Duration

	// Late holds back every byte from the servers.
	Late time.Duration

	// EachLate holds back each message from the servers this long, one after another, like
	// storage that syncs each write.
	EachLate time.Duration

	// Clogged: connections stay open, and nothing is read from either side. Stalled: nothing is
	// read from the client.
	Clogged, Stalled bool

	// Hold keeps everything from the servers until the fault is over.
	Hold bool

	// Deaf loses everything from the servers. When the fault ends, the connections are cut.
	Deaf bool

	// Sever waits for the client to send these bytes. If Then is nil, it cuts the
	// connection before they are sent. Otherwise it sends them, and Then takes effect.
	Sever []byte
	Then  *Fault

	// Lose drops each message that the client publishes to a subject that begins so.
	Lose []byte
}

// New starts a proxy for clients with a Dialer, which names the server of each connection. So
// contexts, credentials, TLS and servers that the client discovers later work through the proxy,
// and no connection avoids it.
func New() (*Proxy, error) { return To("") }

// To starts a proxy in front of the server at this address.
func To(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{listener: l, target: target, conns: map[net.Conn]bool{}, woken: make(chan struct{})}
	p.all.Go(p.accept)
	return p, nil
}

// Address is where clients connect.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Close cuts all connections, and returns when they are closed.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.Set(Fault{Cut: true})
	p.all.Wait()
}

// Set changes the fault. It cuts the connections if the new fault allows none, or if the
// old one has lost bytes.
func (p *Proxy) Set(fault Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := fault.Cut || p.fault.Deaf
	p.fault, p.lost = fault, false
	close(p.woken)
	p.woken = make(chan struct{})
	if cut {
		p.cut()
	}
}

// cut closes all connections. p.mu is held.
func (p *Proxy) cut() {
	for c := range p.conns {
		_ = c.Close()
	}
}

// now returns the fault, and a channel that is closed when the fault changes.
func (p *Proxy) now() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.woken
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if tcp, ok := client.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(socketBuffer)
	}
	from, target := bufio.NewReader(client), p.target
	if target == "" {
		_ = client.SetReadDeadline(time.Now().Add(5 * time.Second))
		line, err := from.ReadString('\n')
		if err != nil {
			return
		}
		_ = client.SetReadDeadline(time.Time{})
		target = line
	}
	server, err := net.DialTimeout("tcp", strings.TrimSpace(target), 2*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	if p.fault.Cut {
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
		p.pipe(server, from, func(f Fault) (time.Duration, bool) { return f.Delay, f.Clogged || f.Stalled }, p.asked)
		server.Close()
		client.Close()
	})
	both.Go(func() {
		p.pipe(client, server, func(f Fault) (time.Duration, bool) { return f.Delay + f.Late, f.Clogged }, p.answered)
		server.Close()
		client.Close()
	})
	both.Wait()
}

// pipe copies from one side to the other until one of them is closed. effect returns how long a
// fault delays this direction, and whether it blocks it. pass returns what to write of what was
// read, and false to end.
func (p *Proxy) pipe(to io.Writer, from io.Reader, effect func(Fault) (delay time.Duration, blocked bool), pass func([]byte) ([]byte, bool)) {
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
		p.untilClear(effect)
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		delay := p.untilClear(effect) // the fault may have begun while this waited in Read
		if n > 0 {
			select {
			case chunks <- chunk{buffer[:n], time.Now().Add(delay)}:
			case <-broken:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// untilClear waits while the fault blocks the direction, and returns its delay.
func (p *Proxy) untilClear(effect func(Fault) (time.Duration, bool)) time.Duration {
	for {
		fault, changed := p.now()
		delay, blocked := effect(fault)
		if !blocked {
			return delay
		}
		<-changed
	}
}

// answered passes on what a server sends, unless the fault holds it, slows it or loses it.
func (p *Proxy) answered(data []byte) ([]byte, bool) {
	fault, changed := p.now()
	for fault.Hold {
		<-changed
		fault, changed = p.now()
	}
	if fault.Deaf {
		return nil, true
	}
	time.Sleep(time.Duration(bytes.Count(data, []byte("MSG "))) * fault.EachLate)
	return data, true
}

// asked passes on what a client sends, without the messages that the fault loses. If the data
// contains the bytes of Sever, asked cuts the data before the protocol line that contains them, or
// lets the fault Then take effect.
func (p *Proxy) asked(data []byte) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault.Lose != nil {
		rest := without(data, p.fault.Lose)
		p.lost = p.lost || len(rest) < len(data)
		return rest, true
	}
	i := -1
	if p.fault.Sever != nil {
		i = bytes.Index(data, p.fault.Sever)
	}
	if i < 0 {
		return data, true
	}
	if p.fault.Then != nil {
		p.fault = *p.fault.Then
		return data, true
	}
	p.fault = Fault{}
	return data[:max(bytes.LastIndex(data[:i], []byte("\r\n"))+2, 0)], false
}

// without returns data without the messages to subjects with this prefix. It keeps a message that
// is only partly in data.
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

// HasLost reports whether the fault Lose has dropped a message.
func (p *Proxy) HasLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Severed reports whether the client has sent the bytes of Sever, or there is no such fault.
func (p *Proxy) Severed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault.Sever == nil
}

// socketBuffer is the size of the buffers for what a process writes. It is so small that a
// clogged socket blocks the writer within a second or two.
const socketBuffer = 16 << 10

// Dialer connects through the proxy at this address.
type Dialer string

// Dial satisfies nats.CustomDialer.
func (d Dialer) Dial(network, address string) (net.Conn, error) {
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
