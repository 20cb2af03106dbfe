package kv

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// link holds the state of a connection, so that callers need not ask the connection.
// nats.go answers IsConnected, LastError, Stats and MaxPayload under a lock that it also
// holds while it writes to the socket, for up to a minute. So the link keeps what the
// connection reports: its status, through a channel, and the server's permission
// violations, through the error handler.
//
// A connection can have many status channels but only one error handler. The link calls
// the handler that was set before it, so the connection's owner loses nothing. If the
// owner sets another handler later, requests that are not permitted end only with their
// contexts, like any unanswered request.
//
// The link's goroutine ends when the connection is closed.
type link struct {
	conn      *nats.Conn
	connected atomic.Bool
	losses    atomic.Uint64          // number of disconnects
	found     atomic.Uint64          // number of reconnects
	server    atomic.Pointer[server] // the last server's description; nil: none yet
	closed    chan struct{}

	// complained is called with each permission violation. It must be set before the first
	// one.
	complained func(error)

	mu         sync.Mutex
	complaints []complaint   // the last mostComplaints
	changed    chan struct{} // closed and replaced at a reconnect or a final close
}

// complaint is the server's report of a permission violation.
type complaint struct {
	err error
	at  time.Time
}

// mostComplaints is the number of complaints that a link keeps.
const mostComplaints = 32

func newLink(conn *nats.Conn) *link {
	l := &link{conn: conn, closed: make(chan struct{}), complained: func(error) {}, changed: make(chan struct{})}
	l.begin()
	return l
}

// begin first subscribes to changes and then reads the current state, so it misses no
// change in between.
func (l *link) begin() {
	status := l.conn.StatusChanged()
	before := l.conn.ErrorHandler()
	l.conn.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		l.hear(err)
		if before != nil {
			before(nc, sub, err)
		}
	})
	if l.conn.IsClosed() {
		l.conn.RemoveStatusListener(status)
		close(l.closed)
		return
	}
	l.connected.Store(l.conn.IsConnected())
	l.learn()
	go l.follow(status)
}

// server is what a server reports about itself when the connection is made.
type server struct {
	version, name, cluster string
	address, url           string // the url is without its password
	maxPayload             int
}

// learn reads the server's description from the connection. It may block on the
// connection's lock.
func (l *link) learn() {
	s := server{
		version: l.conn.ConnectedServerVersion(), name: l.conn.ConnectedServerName(), cluster: l.conn.ConnectedClusterName(),
		address: l.conn.ConnectedAddr(), url: l.conn.ConnectedUrlRedacted(), maxPayload: int(l.conn.MaxPayload()),
	}
	if s.version != "" {
		l.server.Store(&s)
	}
}

// connectedServer returns the connected server, or the last one. If the link has none
// yet, it asks the connection and waits for at most a second.
func (l *link) connectedServer() server {
	if l.server.Load() == nil {
		aside(l.learn)
	}
	if s := l.server.Load(); s != nil {
		return *s
	}
	return server{}
}

// maxPayload returns the server's message size limit; 0 means not known yet.
func (l *link) maxPayload() int {
	if s := l.server.Load(); s != nil {
		return s.maxPayload
	}
	return 0
}

func (l *link) follow(status chan nats.Status) {
	defer l.conn.RemoveStatusListener(status)
	for s := range status {
		switch s {
		case nats.CONNECTED:
			l.found.Add(1)
			l.connected.Store(true)
			l.change()
			l.learn()
		case nats.RECONNECTING, nats.DISCONNECTED:
			l.losses.Add(1)
			l.connected.Store(false)
		case nats.CLOSED:
			l.losses.Add(1)
			l.connected.Store(false)
			close(l.closed)
			l.change()
			return
		}
	}
}

func (l *link) change() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// news returns a channel that is closed at the next reconnect or final close.
func (l *link) news() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *link) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// headerRoom is the largest size of a message's headers, except those of slots.
const headerRoom = 1 << 10

// room returns the largest value that the server accepts; 0 means not known yet.
func (l *link) room() int { return max(l.maxPayload()-headerRoom, 0) }

// hear records a permission violation. It ignores other errors.
func (l *link) hear(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	l.mu.Lock()
	if len(l.complaints) == mostComplaints {
		l.complaints = append(l.complaints[:0], l.complaints[1:]...)
	}
	l.complaints = append(l.complaints, complaint{err, time.Now()})
	l.mu.Unlock()
	l.complained(err)
}

// complaintSince returns the last complaint since began that names the subject (about),
// and the last complaint about any subject (any).
func (l *link) complaintSince(began time.Time, subject string) (about, any error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.complaints {
		if c.at.Before(began) {
			continue
		}
		if any = c.err; names(c.err, subject) {
			about = c.err
		}
	}
	return about, any
}
