package kv

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// link is what is known of a connection without asking it. nats.go answers IsConnected,
// LastError, Stats and MaxPayload under the lock that it holds while it writes to the
// socket, which may be a minute. So the link keeps what the connection tells by itself:
// its status, over a channel, and the server's complaints, by the error handler.
//
// The channel works beside others on any connection. A connection has only one error
// handler: the link calls the one that it found, so that the connection's owner loses
// nothing. An owner that sets another one later has requests that are not permitted end
// with their contexts, like any that is not answered.
//
// The link's goroutine ends when the connection is closed for good.
type link struct {
	conn      *nats.Conn
	connected atomic.Bool
	losses    atomic.Uint64          // how often the connection was lost
	found     atomic.Uint64          // how often it was there again
	server    atomic.Pointer[server] // what it said last; nil: nothing yet
	closed    chan struct{}

	// complained is told of each complaint about a permission. Set before the first one.
	complained func(error)

	mu         sync.Mutex
	complaints []complaint   // the last ones
	changed    chan struct{} // closed, and made anew, when there is a connection again, or never will be
}

// complaint is what the server said about a request that it does not permit.
type complaint struct {
	err error
	at  time.Time
}

// mostComplaints is how many are remembered.
const mostComplaints = 32

func newLink(conn *nats.Conn) *link {
	l := &link{conn: conn, closed: make(chan struct{}), complained: func(error) {}, changed: make(chan struct{})}
	l.begin()
	return l
}

// begin listens, and then looks: what happens in between is heard.
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

// server is what a server says of itself when the connection is made.
type server struct {
	version, name, cluster string
	address, url           string // the url without a password
	maxPayload             int
}

// learn asks the connection, which may wait for its lock.
func (l *link) learn() {
	s := server{
		version: l.conn.ConnectedServerVersion(), name: l.conn.ConnectedServerName(), cluster: l.conn.ConnectedClusterName(),
		address: l.conn.ConnectedAddr(), url: l.conn.ConnectedUrlRedacted(), maxPayload: int(l.conn.MaxPayload()),
	}
	if s.version != "" {
		l.server.Store(&s)
	}
}

// connectedServer is the server of the connection, or the last one. It waits for at most
// a second, if none has answered yet as far as the link knows.
func (l *link) connectedServer() server {
	if l.server.Load() == nil {
		aside(l.learn)
	}
	if s := l.server.Load(); s != nil {
		return *s
	}
	return server{}
}

// maxPayload is the server's limit for a message; 0: it is not known yet.
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

// news is closed when there is a connection again, or never will be.
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

// headerRoom is what a message's headers take at most, but for those of slots.
const headerRoom = 1 << 10

// room is how many bytes a value may have that the server takes; 0: not known yet.
func (l *link) room() int { return max(l.maxPayload()-headerRoom, 0) }

// hear takes in what the connection reports.
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

// complaintSince is the last complaint since then about the subject, or, if there is none,
// the last one about anything.
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
