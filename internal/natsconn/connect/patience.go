package connect

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// dialTimeout limits how long a server may take to accept a connection.
	dialTimeout = 3 * time.Second

	// leastHandshake and mostHandshake bound the limit of a handshake. The handshake begins when the
	// server has accepted the connection, and takes two answers of the server.
	leastHandshake = 3 * time.Second
	mostHandshake  = 24 * time.Second
)

// patience is a dialer that gives handshakes more time while servers are slow. A handshake that
// times out doubles the limit. So the client reaches a server whose answers take ten seconds, and
// loses only three seconds with a frozen server if another one answers. A handshake that succeeds
// sets the limit to four times its duration, so the next one does not start again with the least
// limit. One that the server refuses leaves the limit: another server may be slow.
//
// nats.go has one limit for all handshakes, and sets it as the deadline of the connection.
// patience replaces that deadline. Over wss, nats.go sets none for the handshake of TLS.
type patience struct {
	dialer nats.CustomDialer

	mu    sync.Mutex
	limit time.Duration
}

func newPatience(dialer nats.CustomDialer) *patience {
	if dialer == nil {
		dialer = &net.Dialer{Timeout: dialTimeout}
	}
	return &patience{dialer: dialer, limit: leastHandshake}
}

// now returns the limit of the next handshake.
func (p *patience) now() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

func (p *patience) set(limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = min(max(limit, leastHandshake), mostHandshake)
}

// Dial implements nats.CustomDialer.
func (p *patience) Dial(network, address string) (net.Conn, error) {
	conn, err := p.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	c := &handshake{Conn: conn, patience: p}
	return c, c.SetDeadline(time.Now())
}

// handshake is a connection whose handshake is limited by patience. Afterwards it has no deadline.
type handshake struct {
	net.Conn
	patience *patience

	mu    sync.Mutex
	began time.Time // zero: no handshake is under way
	limit time.Duration

	// next is the limit to be set if the handshake has succeeded; 0: none.
	next time.Duration
}

// SetDeadline begins the handshake, unless one is under way, and with the zero time ends it. nats.go
// calls it with the zero time after a failed handshake too, but reads only after one that succeeded.
func (c *handshake) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.IsZero() {
		if !c.began.IsZero() {
			c.next = max(4*time.Since(c.began), leastHandshake)
		}
		c.began = time.Time{}
		return c.Conn.SetDeadline(t)
	}
	if c.began.IsZero() {
		c.began, c.limit = time.Now(), c.patience.now()
	}
	return c.Conn.SetDeadline(c.began.Add(c.limit))
}

// SetReadDeadline begins the handshake of a WebSocket, which follows that of TLS and precedes that
// of NATS, and with the zero time ends it. nats.go calls it.
func (c *handshake) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.began = time.Time{}
	c.mu.Unlock()
	return c.SetDeadline(t)
}

// Read doubles the limit if the handshake has timed out, and sets it if it has succeeded. It closes a
// connection that has timed out: nats.go leaves it open if that was in the handshake of TLS over wss.
func (c *handshake) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil && c.next > 0:
		c.patience.set(c.next)
		c.next = 0
	case errors.Is(err, os.ErrDeadlineExceeded) && !c.began.IsZero():
		c.began = time.Time{}
		c.patience.set(2 * c.limit)
		_ = c.Conn.Close()
	}
	return n, err
}
