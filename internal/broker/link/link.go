// Package link keeps the last known state of a connection to the broker, so that callers need not
// ask the connection.
//
// nats.go answers IsConnected, LastError, Stats and MaxPayload under a lock that it also
// holds while it writes to the socket, for up to a minute. So the link keeps what the
// connection reports: its status, through a channel, and the server's permission
// violations, through the error handler.
//
// A connection can have many status channels but only one error handler. The link calls
// the handler that was set before it, so the connection's owner loses nothing. If the
// owner sets another handler later, requests that are not permitted end only with their
// contexts, like any unanswered request, until HandleErrors is called again.
package link

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Link is the last reported state of a connection. It is safe for concurrent use. Its goroutine
// ends when the connection is closed.
type Link struct {
	conn       *nats.Conn
	Connected  atomic.Bool
	Losses     atomic.Uint64          // grows with each disconnect, failed reconnect and close
	Reconnects atomic.Uint64          // number of reconnects
	server     atomic.Pointer[Server] // the last server's description; nil: none yet
	Closed     chan struct{}

	// Complained is called with each permission violation. It must be set before the first
	// one.
	Complained func(error)

	handling sync.Mutex // held while HandleErrors runs

	mu         sync.Mutex
	complaints []complaint   // the last mostComplaints
	changed    chan struct{} // see Changed; nil: no caller waits
}

// complaint is the server's report of a permission violation.
type complaint struct {
	err error
	at  time.Time
}

// asideWait is how long Aside waits.
const asideWait = time.Second

// mostComplaints is the number of complaints that a link keeps.
const mostComplaints = 32

// New returns the link of the connection. It first subscribes to changes and then reads the current
// state, so that it misses no change in between. When the connection is closed, or if it is, the link
// calls closed.
func New(conn *nats.Conn, closed func()) *Link {
	l := &Link{conn: conn, Closed: make(chan struct{}), Complained: func(error) {}}
	status := conn.StatusChanged()
	l.HandleErrors()
	if conn.IsClosed() {
		conn.RemoveStatusListener(status)
		close(l.Closed)
		closed()
		return l
	}
	l.Connected.Store(conn.IsConnected())
	l.readServer()
	go func() {
		defer closed()
		l.watchStatus(status)
	}()
	return l
}

// HandleErrors makes the link the connection's error handler, unless it is.
func (l *Link) HandleErrors() {
	l.handling.Lock()
	defer l.handling.Unlock()
	before := l.conn.ErrorHandler()
	handler := func(nc *nats.Conn, sub *nats.Subscription, err error) {
		l.recordViolation(err)
		if before != nil {
			before(nc, sub, err)
		}
	}
	// Functions of this code can only be links' handlers, and a connection has one link.
	if before == nil || reflect.ValueOf(before).Pointer() != reflect.ValueOf(handler).Pointer() {
		l.conn.SetErrorHandler(handler)
	}
}

// Server is the description that a server sends when a client connects. It is empty while there is
// none.
type Server struct {
	Version, Name string
	Address, URL  string // the URL without its password
	maxPayload    int
}

// readServer reads the server's description from the connection. It may block on the connection's
// lock.
func (l *Link) readServer() {
	s := Server{
		Version: l.conn.ConnectedServerVersion(), Name: l.conn.ConnectedServerName(),
		Address: l.conn.ConnectedAddr(), URL: l.conn.ConnectedUrlRedacted(), maxPayload: int(l.conn.MaxPayload()),
	}
	if s.Version != "" {
		l.server.Store(&s)
	}
}

// AtLeast reports whether the server's version is major.minor or newer. If the version is not known
// yet, the result is true: a later request reveals an older server.
func (s Server) AtLeast(major, minor int) bool {
	var x, y int
	if _, err := fmt.Sscanf(s.Version, "%d.%d", &x, &y); err != nil {
		return true
	}
	return x > major || x == major && y >= minor
}

// ConnectedServer returns the connected server, or the last one. If the link has none
// yet, it asks the connection and waits for at most a second.
func (l *Link) ConnectedServer() Server {
	if l.server.Load() == nil {
		Aside(l.readServer)
	}
	if s := l.server.Load(); s != nil {
		return *s
	}
	return Server{}
}

// MaxPayload returns the server's message size limit; 0 means not known yet.
func (l *Link) MaxPayload() int {
	if s := l.server.Load(); s != nil {
		return s.maxPayload
	}
	return 0
}

// watchStatus follows the status of the connection until it is closed.
func (l *Link) watchStatus(status chan nats.Status) {
	defer l.conn.RemoveStatusListener(status)
	for s := range status {
		switch s {
		case nats.CONNECTED:
			l.Reconnects.Add(1)
			l.Connected.Store(true)
			l.signalChange()
			l.readServer()
		case nats.RECONNECTING, nats.DISCONNECTED:
			l.Losses.Add(1)
			l.Connected.Store(false)
		case nats.CLOSED:
			l.Losses.Add(1)
			l.Connected.Store(false)
			close(l.Closed)
			l.signalChange()
			return
		}
	}
}

// signalChange closes the channel of Changed.
func (l *Link) signalChange() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Changed returns a channel that is closed at the next reconnect or final close.
func (l *Link) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

func (l *Link) IsClosed() bool {
	select {
	case <-l.Closed:
		return true
	default:
		return false
	}
}

// recordViolation records a permission violation. It ignores other errors.
func (l *Link) recordViolation(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	l.mu.Lock()
	if len(l.complaints) == mostComplaints {
		l.complaints = append(l.complaints[:0], l.complaints[1:]...)
	}
	l.complaints = append(l.complaints, complaint{err, time.Now()})
	l.mu.Unlock()
	l.Complained(err)
}

// isAboutInbox reports whether the complaint is about a subscription to an inbox of the connection.
func (l *Link) isAboutInbox(complaint error) bool {
	if l.conn == nil {
		return false
	}
	prefix := l.conn.Opts.InboxPrefix
	if prefix == "" {
		prefix = strings.TrimSuffix(nats.InboxPrefix, ".")
	}
	return strings.Contains(complaint.Error(), `Subscription to "`+prefix+".")
}

// ComplaintSince returns two of the complaints since began. Each may be nil. about is the last one
// that names the subject, or the connection's inbox: a login that may not subscribe to its inbox
// receives no answers. any is the last complaint, whatever it names.
func (l *Link) ComplaintSince(began time.Time, subject string) (about, any error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.complaints {
		if c.at.Before(began) {
			continue
		}
		switch any = c.err; {
		case Names(c.err, subject):
			about = c.err
		case l.isAboutInbox(c.err):
			about = fmt.Errorf("%w: this login may not receive answers there: connect with the inbox prefix that cronce auth prints for it (nats.CustomInboxPrefix)", c.err)
		}
	}
	return about, any
}

// Names reports whether a complaint names this subject, or a subject that begins with it
// and a dot.
func Names(complaint error, subject string) bool {
	_, after, found := strings.Cut(complaint.Error(), `"`+subject)
	return found && (strings.HasPrefix(after, `"`) || strings.HasPrefix(after, "."))
}

// Aside runs f, which may block on the connection's lock, in a goroutine, and waits for at most a
// second. After that, f continues in the background.
func Aside(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	late := time.NewTimer(asideWait)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	}
}
