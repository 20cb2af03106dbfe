// Package wire talks to the broker: requests, writes, reads and watches of a stream,
// whatever the stream holds.
//
//   - Writing (writing.go). A write stores a value only if a given revision is the last
//     one of its key; 0 means that the key is new. It returns a revision (stored),
//     job.ErrConflict (not stored, or overwritten since), job.ErrUnknown (the context
//     ended first), or a refusal. An unanswered write is sent again, the same bytes at the
//     same revision. After a conflict the write reads the key at the stream's leader: a
//     value with its own nonce is its own earlier copy.
//   - Batches (batch.go). Many writes of a bucket, or publications to a stream, travel as one
//     atomic batch. A batch that fails settles nothing: its members are sent singly.
//   - Groups (group.go, storage.go). On storage that syncs each write, writes of the ledger and of the
//     locks, and publications of slots, wait while others are open. Then they travel as a batch.
//   - Transport (transport.go, writer.go). It has one inbox, one map of open questions, one
//     goroutine that writes to the connection, and one timer. Most callbacks run on the
//     goroutine that receives answers, so they must not block.
//   - Connection (package link). nats.go may hold its lock for a minute while it writes to a
//     socket. The link keeps what the connection reports, so callers never ask it.
//   - Permissions (classify.go). The server does not answer a request that it does not
//     permit; it reports a violation to the connection's error handler. Most requests
//     then end with job.ErrDenied. A node repeats a write of a record, a lock, a timer or the
//     watermark, because an operator may correct the login.
//   - Reading (reading.go, bucket.go, backward.go, changes.go). A read of one key asks the
//     stream's leader. A pass over many keys asks any replica, in large batches, because
//     no decision depends on it.
//   - Watching (watch.go). A watch lists the bucket, then follows its stream. A gap, a
//     reconnect or a failed audit ends the session; the next one reports the differences.
//
// # Invariants
//
//   - Of any number of copies of a write, at most one is ever stored: the broker stores a
//     value at revision R only while R is the last one, and revisions only grow.
//   - A timeout means unknown, never no. Only an answer to a copy settles a write; a read
//     by itself never does, because it cannot see copies in flight.
//   - A question has one reply subject, open until the question ends. So any answer to any
//     copy counts, however late it arrives.
//   - Nothing that has a deadline waits for the connection's lock. The writer checks each
//     question after it has the lock, and does not send a question that has ended.
//   - Every reading is a hint. Even a leader's answer may be stale; a write decides.
//
// The reasons and the rejected alternatives are in docs/decisions: 0004 (the transport),
// 0020 (raw publications instead of the client's KeyValue), 0021 (a batch settles its
// writes only if it succeeds) and 0022 (writes that wait go together).
package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/link"
)

// defaultPrefix is the prefix of JetStream API subjects without a domain or an imported
// account.
const defaultPrefix = jetstream.DefaultAPIPrefix

// Wire is the connection to the broker, and the prefix of its JetStream API subjects.
type Wire struct {
	JS        jetstream.JetStream
	Transport *transport
	Prefix    string // of API subjects, including the last dot
	domain    string
	Stamp     func(time.Time) time.Time
	BatchSize int // bounds the messages of one answer to All and Batches; 0: getSize

	// BatchBytes bounds the bytes of one answer to All and Batches, except the first message of it; 0: getBytes.
	BatchBytes int
}

// NewWire returns the wire of a client's connection.
func NewWire(js jetstream.JetStream) Wire {
	w := Wire{JS: js, Transport: transportOf(js.Conn()), Prefix: defaultPrefix}
	switch o := js.Options(); {
	case o.Domain != "":
		w.domain = o.Domain
		w.Prefix = "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		w.Prefix = strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return w
}

// transports has the transport of each open connection, a func() *transport by its *nats.Conn. All
// wires of a connection share it: its goroutines, its error handler and its subscription stay until
// the connection is closed, and a program may make a client for each request.
var transports sync.Map

// transportOf returns the transport of the connection, and creates it if there is none. It may wait for
// the connection's lock.
func transportOf(conn *nats.Conn) *transport {
	create, exists := transports.LoadOrStore(conn, sync.OnceValue(func() *transport {
		return newTransport(conn, link.New(conn, func() { transports.Delete(conn) }), conn.NewInbox())
	}))
	t := create.(func() *transport)()
	if exists {
		t.link.HandleErrors()
	}
	return t
}

// Stamped converts a timestamp of the broker with Stamp, if that is set.
func (w Wire) Stamped(t time.Time) time.Time {
	if w.Stamp == nil {
		return t
	}
	return w.Stamp(t)
}

func (w Wire) Conn() *nats.Conn { return w.JS.Conn() }

func (w Wire) Link() *link.Link { return w.Transport.link }

// HeaderRoom is the largest size of a message's headers, except those of slots.
const HeaderRoom = 1 << 10

// Room returns the largest size of a value that the server accepts, or 0 while it is unknown.
func (w Wire) Room() int { return max(w.Link().MaxPayload()-HeaderRoom, 0) }

// Entry is a stored message.
type Entry struct {
	Subject  string
	Revision uint64
	Time     time.Time
	Header   nats.Header
	Data     []byte
}

const (
	headerOperation = "KV-Operation"
	headerMarker    = "Nats-Marker-Reason"
	HeaderNonce     = "Cronce-Nonce"
)

// Gone reports whether the entry is a marker in place of a removed value.
func (e Entry) Gone() bool {
	op := e.Header.Get(headerOperation)
	return op == "DEL" || op == "PURGE" || e.Header.Get(headerMarker) != ""
}

// same reports whether the entry holds exactly this message. Every message has a nonce: a
// value contains it, a marker has it in a header.
func (e Entry) same(header nats.Header, data []byte) bool {
	return string(e.Data) == string(data) && e.Header.Get(HeaderNonce) == header.Get(HeaderNonce) &&
		e.Header.Get(headerOperation) == header.Get(headerOperation)
}

// ErrNothing is the error of a read that finds no message.
var ErrNothing = errors.New("nothing is stored there")

// API returns the subject of an operation of the JetStream API.
func (w Wire) API(operation string) string { return w.Prefix + operation }

// stored decodes the answer to a write: the revision at which the message is stored.
func (w Wire) stored(subject string, answer *nats.Msg) (uint64, error) {
	a, err := PubAck(answer)
	if err != nil {
		return 0, err
	}
	return a.seq, w.Misplaced(func() string { return subject }, a.Domain)
}

// Misplaced returns an error if a message was stored in a different JetStream domain than
// the client's. This happens if the subject has no API prefix, a leaf node forwards it, and a
// stream of another domain listens on it too. A server without a domain reports none. Then
// there is nothing to compare: the client's domain is only the prefix under which its account
// imports the API.
func (w Wire) Misplaced(subject func() string, domain string) error {
	if want := w.domain; want != "" && domain != "" && domain != want {
		return fmt.Errorf("%w: stored in domain %q, not %q: two streams listen on %s: namespaces of connected domains need different names (--namespace)", jetstream.ErrInvalidOption, domain, want, subject())
	}
	return nil
}

// batch requests from any replica the next messages that match filter, from the sequence
// from on, or from the time since on if it is set. An empty filter matches all: then the broker
// need not count the matches for each batch. more reports whether there are further ones.
func (w Wire) batch(ctx context.Context, stream, filter string, from uint64, since time.Time) (_ []Entry, more bool, err error) {
	question := map[string]any{}
	if filter != "" {
		question["next_by_subj"] = filter
	}
	if since.IsZero() {
		question["seq"] = from
	} else {
		question["start_time"] = since.UTC()
	}
	if w.BatchSize > 0 {
		question["batch"] = w.BatchSize
	}
	return w.Get(ctx, stream, question)
}

// Few requests from any replica the last message of each subject that matches filter,
// oldest first. The broker finds them by its index, whereas batch makes it scan the stream.
// If there are too many for the index, or for one answer, complete is false.
func (w Wire) Few(ctx context.Context, stream, filter string) (found []Entry, complete bool, err error) {
	found, more, err := w.Get(ctx, stream, map[string]any{"multi_last": []string{filter}})
	if errors.Is(err, errTooMany) {
		return nil, false, nil
	}
	return found, !more, err
}

// errTooMany is the broker's answer to Few if more than 1,024 subjects match.
var errTooMany = errors.New("too many results")

// direct decodes the answer to a direct get. If it holds no message, the error is ErrNothing.
func (w Wire) direct(m *nats.Msg) (Entry, error) {
	switch status := m.Header.Get("Status"); status {
	case "":
	case "404":
		return Entry{}, ErrNothing
	default: // for example, the replica cannot answer now
		return Entry{}, fmt.Errorf("direct get: status %s %s", status, m.Header.Get("Description"))
	}
	revision, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return Entry{}, fmt.Errorf("direct get: sequence: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return Entry{}, fmt.Errorf("direct get: time: %w", err)
	}
	return Entry{m.Header.Get(jetstream.SubjectHeader), revision, w.Stamped(at), m.Header, m.Data}, nil
}
