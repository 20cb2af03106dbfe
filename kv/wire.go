package kv

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// defaultPrefix is the prefix of JetStream API subjects without a domain or an imported
// account.
const defaultPrefix = jetstream.DefaultAPIPrefix

// wire is the connection to the broker, and the prefix of its JetStream API subjects.
type wire struct {
	js        jetstream.JetStream
	transport *transport
	prefix    string // of API subjects, including the last dot
	domain    string
	stamp     func(time.Time) time.Time
}

func newWire(js jetstream.JetStream) wire {
	conn := js.Conn()
	w := wire{js: js, transport: newTransport(conn, newLink(conn), conn.NewInbox()), prefix: defaultPrefix}
	switch o := js.Options(); {
	case o.Domain != "":
		w.domain = o.Domain
		w.prefix = "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		w.prefix = strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return w
}

// stamped converts a timestamp of the broker with the store's stamp function.
func (w wire) stamped(t time.Time) time.Time {
	if w.stamp == nil {
		return t
	}
	return w.stamp(t)
}

func (w wire) conn() *nats.Conn { return w.js.Conn() }

func (w wire) link() *link { return w.transport.link }

// room returns the largest size of a value that the server accepts, or 0 while it is unknown.
func (w wire) room() int { return w.link().room() }

// entry is a stored message: the last one of its key, or one of a pass.
type entry struct {
	subject  string
	revision uint64
	time     time.Time
	header   nats.Header
	data     []byte
}

const (
	headerOperation = "KV-Operation"
	headerMarker    = "Nats-Marker-Reason"
	headerNonce     = "Cronce-Nonce"
)

// gone reports whether the entry is a marker in place of a removed value.
func (e entry) gone() bool {
	op := e.header.Get(headerOperation)
	return op == "DEL" || op == "PURGE" || e.header.Get(headerMarker) != ""
}

// same reports whether the entry holds exactly this message. Every message has a nonce: a
// value contains it, a marker has it in a header.
func (e entry) same(header nats.Header, data []byte) bool {
	return string(e.data) == string(data) && e.header.Get(headerNonce) == header.Get(headerNonce) &&
		e.header.Get(headerOperation) == header.Get(headerOperation)
}

var errNothing = errors.New("nothing is stored there")

// api returns the subject of an operation of the JetStream API.
func (w wire) api(operation string) string { return w.prefix + operation }

// stored decodes the answer to a write: the revision at which the message is stored.
func (w wire) stored(subject string, answer *nats.Msg) (uint64, error) {
	a, err := pubAck(answer)
	if err != nil {
		return 0, err
	}
	return a.seq, w.misplaced(func() string { return subject }, a.domain)
}

// misplaced returns an error if a message was stored in a different JetStream domain than
// the client's. A subject without a prefix crosses a leaf node. A server without a domain
// reports none. In that case, the client's domain is the prefix of an account's import.
func (w wire) misplaced(subject func() string, domain string) error {
	if want := w.domain; want != "" && domain != "" && domain != want {
		return fmt.Errorf("%w: stored in domain %q, not %q: two streams listen on %s", jetstream.ErrInvalidOption, domain, want, subject())
	}
	return nil
}

// batch requests from any replica the next messages that match filter, from the sequence
// from on, or from the time since on if it is set. An empty filter matches all, and spares
// the broker counting matches for each batch. more reports whether there are further ones.
func (w wire) batch(ctx context.Context, stream, filter string, from uint64, since time.Time) (_ []entry, more bool, err error) {
	question := map[string]any{}
	if filter != "" {
		question["next_by_subj"] = filter
	}
	if since.IsZero() {
		question["seq"] = from
	} else {
		question["start_time"] = since.UTC()
	}
	return w.get(ctx, stream, question)
}

// few requests from any replica the last message of each subject that matches filter,
// oldest first. The broker finds them by its index, whereas batch makes it scan the stream.
// If there are too many for the index, or for one answer, complete is false.
func (w wire) few(ctx context.Context, stream, filter string) (found []entry, complete bool, err error) {
	found, more, err := w.get(ctx, stream, map[string]any{"multi_last": []string{filter}})
	if errors.Is(err, errTooMany) {
		return nil, false, nil
	}
	return found, !more, err
}

// errTooMany is the broker's answer to few if more than 1,024 subjects match.
var errTooMany = errors.New("too many results")

// direct decodes the answer to a direct get.
func (w wire) direct(m *nats.Msg) (entry, error) {
	revision, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return entry{}, fmt.Errorf("direct get: sequence: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return entry{}, fmt.Errorf("direct get: time: %w", err)
	}
	return entry{m.Header.Get(jetstream.SubjectHeader), revision, w.stamped(at), m.Header, m.Data}, nil
}
