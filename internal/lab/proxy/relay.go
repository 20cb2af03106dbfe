package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"
)

// Relay accepts clients and connects each of them to a server. It is safe for concurrent use.
type Relay struct {
	listener net.Listener
	target   string // the server; empty: the first line of each connection names it
	pass     Pass

	mu     sync.Mutex
	refuse bool // new connections are closed at once
	conns  map[net.Conn]bool
	all    sync.WaitGroup
}

// Pass copies what one side of a connection sends to the other side. It returns when it cannot read
// or write any more. Then the relay closes both sides.
type Pass func(to io.WriteCloser, from io.Reader, toServer bool)

// NewRelay starts a relay in front of the server at this address.
func NewRelay(target string, pass Pass) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	r := &Relay{listener: l, target: target, pass: pass, conns: map[net.Conn]bool{}}
	r.all.Go(r.accept)
	return r, nil
}

// Address returns the address to which clients connect.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// URL returns the URL with which clients connect to the server through the relay.
func (r *Relay) URL() string { return "nats://" + r.Address() }

// Disconnect closes all connections. Clients may connect again.
func (r *Relay) Disconnect() { r.set(false, true) }

// Close closes all connections, and returns when nothing is passed on any more.
func (r *Relay) Close() {
	_ = r.listener.Close()
	r.set(true, true)
	r.all.Wait()
}

func (r *Relay) set(refuse, disconnect bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = refuse
	if disconnect {
		for c := range r.conns {
			_ = c.Close()
		}
	}
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.all.Go(func() { r.serve(client) })
	}
}

func (r *Relay) serve(client net.Conn) {
	defer client.Close()
	from, target := bufio.NewReader(client), r.target
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
	r.mu.Lock()
	if r.refuse {
		r.mu.Unlock()
		return
	}
	r.conns[client], r.conns[server] = true, true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, client)
		delete(r.conns, server)
	}()
	var both sync.WaitGroup
	both.Go(func() {
		r.pass(server, from, true)
		server.Close()
		client.Close()
	})
	both.Go(func() {
		r.pass(client, server, false)
		server.Close()
		client.Close()
	})
	both.Wait()
}

// FreePorts finds ports on loopback on which nothing listens. They are outside the ephemeral range, so
// the system gives none of them to another socket before a server listens there, or while it is down.
func FreePorts(n int) (ports []int, err error) {
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		port := 10_000 + rand.IntN(20_000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			defer l.Close() // only at the end, so that no port is found twice
			ports = append(ports, port)
		}
	}
	return nil, errors.New("no free ports between 10000 and 30000 on 127.0.0.1")
}
