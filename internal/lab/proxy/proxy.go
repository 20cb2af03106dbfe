// Package proxy implements a TCP proxy between a client and NATS servers, which cuts connections, and
// delays, holds back and loses what the two sides send. Tests, torture and the conformance kit use it.
package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// Proxy is a relay with faults. It is safe for concurrent use.
type Proxy struct {
	*Relay

	mu    sync.Mutex
	fault Fault
	woken chan struct{} // closed and replaced when fault changes
	lost  bool          // the fault Lose has dropped a message
	watch stopwatch

	distance Distance
	up, down link // to the servers, and from them
}

// Fault is what is wrong with the connections. The zero Fault is none.
type Fault struct {
	// Cut: there are no connections, and none can be made.
	Cut bool

	// Delay holds back every byte from the client, and Late every byte from the servers.
	Delay, Late time.Duration

	// EachLate holds back each message from the servers for this long. The delays of several messages
	// add up, as with storage that syncs each write.
	EachLate time.Duration

	// Clogged: connections stay open, and nothing is read from either side. Stalled: nothing is
	// read from the client.
	Clogged, Stalled bool

	// Hold keeps everything from the servers until the fault is over.
	Hold bool

	// Deaf loses everything from the servers, and Mute everything from the client. When the fault ends,
	// the connections are cut.
	Deaf, Mute bool

	// Sever waits for the client to send these bytes. If Then is nil, it cuts the
	// connection before they are sent. Otherwise it sends them, and Then takes effect.
	Sever []byte
	Then  *Fault

	// Lose drops each message that the client publishes to a subject that begins with these bytes.
	Lose []byte
}

// New starts a proxy for clients that connect with a Dialer. The Dialer names the server of each
// connection. So contexts, credentials, TLS and servers that the client discovers later work through
// the proxy, and no connection avoids it.
func New() (*Proxy, error) { return To("") }

// To starts a proxy in front of the server at this address.
func To(target string) (*Proxy, error) {
	p := &Proxy{woken: make(chan struct{})}
	var err error
	if p.Relay, err = NewRelay(target, p.pass); err != nil {
		return nil, err
	}
	return p, nil
}

// Close cuts all connections, and returns when they are closed.
func (p *Proxy) Close() {
	p.Set(Fault{Cut: true}) // ends a fault that blocks
	p.Relay.Close()
}

// SetDistance puts the servers this far away. No fault ends that.
func (p *Proxy) SetDistance(d Distance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.distance = d
}

// Set changes the fault. It closes the connections if the new fault is Cut, or if the old one was
// Deaf or Mute and so has lost bytes.
func (p *Proxy) Set(fault Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := p.fault.Deaf || p.fault.Mute
	p.fault, p.lost = fault, false
	close(p.woken)
	p.woken = make(chan struct{})
	if fault.Cut || lost {
		clear(p.watch.sent) // what the lost connections carried gets no answer
	}
	p.set(fault.Cut, fault.Cut || lost)
}

// Heal ends the fault. The methods below set one fault each.
func (p *Proxy) Heal() { p.Set(Fault{}) }

func (p *Proxy) Cut() { p.Set(Fault{Cut: true}) }

func (p *Proxy) Deafen() { p.Set(Fault{Deaf: true}) }

func (p *Proxy) Lag(late time.Duration) { p.Set(Fault{Late: late}) }

func (p *Proxy) Slow(each time.Duration) { p.Set(Fault{EachLate: each}) }

func (p *Proxy) Stall() { p.Set(Fault{Stalled: true}) }

// now returns the fault, and a channel that is closed when the fault changes.
func (p *Proxy) now() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.woken
}

func (p *Proxy) pass(to io.WriteCloser, from io.Reader, toServer bool) {
	if toServer {
		p.pipe(to, from, &p.up, func(f Fault) (time.Duration, bool) { return f.Delay, f.Clogged || f.Stalled }, func(data []byte) ([]byte, bool) {
			data, goOn := p.fromClient(data)
			p.noteSent(data)
			return data, goOn
		})
		return
	}
	if client, ok := to.(*net.TCPConn); ok {
		_ = client.SetReadBuffer(socketBuffer)
	}
	p.pipe(to, answers{from, p}, &p.down, func(f Fault) (time.Duration, bool) { return f.Late, f.Clogged }, p.fromServer)
}

// pipe copies from one side to the other until one of them is closed. The link carries what it copies. effect returns how long a
// fault delays this direction, and whether the fault blocks it. pass returns which of the read bytes
// to write, and false to end. At its end the sender closes to, because the reader may be blocked in
// from.Read. The pipe of the other direction reads from to, so it ends too, and then the relay closes
// both connections.
func (p *Proxy) pipe(to io.WriteCloser, from io.Reader, l *link, effect func(Fault) (delay time.Duration, blocked bool), pass func([]byte) ([]byte, bool)) {
	type chunk struct {
		data []byte
		at   time.Time
	}
	chunks := make(chan chunk, 1024)
	var sender sync.WaitGroup
	broken := make(chan struct{})
	sender.Go(func() {
		defer close(broken)
		defer to.Close()
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
		delay := p.untilClear(effect) // the fault may have begun during Read
		if n > 0 {
			arrives := p.send(l, n)
			select {
			case chunks <- chunk{buffer[:n], arrives.Add(delay)}:
			case <-broken:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// untilClear waits while the fault blocks the direction, and returns the delay of the direction.
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

// fromServer returns what to pass on of the data from a server. It waits while the fault holds the
// data, or as long as the fault slows it down, and returns nothing if the fault loses it.
func (p *Proxy) fromServer(data []byte) ([]byte, bool) {
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

// fromClient returns what to pass on of the data from a client, without the messages that the fault
// loses. If the data contains the bytes of Sever, fromClient sets the fault Then. If Then is nil, it
// cuts the data before the protocol line with those bytes, and ends the connection.
func (p *Proxy) fromClient(data []byte) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault.Mute {
		return nil, true
	}
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
	return data[:bytes.LastIndexByte(data[:i], '\n')+1], false
}

// without returns data without the messages to subjects with this prefix. It keeps a message of
// which data has only a part.
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

// Severed reports whether the client has sent the bytes of Sever, or no fault waits for any.
func (p *Proxy) Severed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault.Sever == nil
}

// socketBuffer is the size of the socket buffers between a client and the proxy. It is so small that
// a clogged connection blocks its writer within a second or two.
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
