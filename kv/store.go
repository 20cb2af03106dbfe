package kv

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// DefaultNamespace is the namespace if Options.Namespace is empty.
const DefaultNamespace = job.DefaultNamespace

// Options select the namespace to open and how to open it.
type Options struct {
	// Namespace is the prefix of all names on the broker, so that several namespaces can
	// share an account. If it is empty, it is DefaultNamespace.
	Namespace string

	// Want are the settings that the caller requires. For each zero field, Open adopts
	// the stored value, or the default if nothing is stored yet. Setup keeps the stored
	// value.
	Want job.Settings

	// ReadOnly makes Open create nothing. If the namespace is not set up, the error is
	// job.ErrNotFound. With ReadOnly, every write that the server does not permit fails
	// with job.ErrDenied. Without ReadOnly, only registry writes fail fast.
	ReadOnly bool

	// Queues are the queues whose missing consumers Setup creates.
	Queues []string

	// Stamp converts the broker's timestamps, for tests that run a fleet on its own
	// clock. It must return the same result for the same timestamp, and keep their order.
	// If it is nil, timestamps are not converted.
	Stamp func(time.Time) time.Time

	// Trace starts the trace of every publication. It may set the message's Traceparent.
	// It returns a function that is called with the result, or nil. If Trace is nil,
	// nothing is traced.
	Trace func(queue string, m *core.Message) (ended func(duplicate bool, err error))

	// Logger logs events that no caller receives as an error. If it is nil, nothing is
	// logged.
	Logger *slog.Logger
}

// Store is one namespace on the broker. A Store and its parts are safe for concurrent
// use. It owns no goroutine and needs no closing.
type Store struct {
	wire
	headers   *headers // of slots
	namespace string
	settings  job.Settings
	registry  time.Time         // creation time of the registry's bucket
	audit     time.Duration     // interval between the audits of a watch
	plans     core.EntryDecoder // of stored definitions
	readOnly  bool
	atomic    bool // the registry's stream allows atomic batches
	trace     func(queue string, m *core.Message) (ended func(duplicate bool, err error))
	log       *slog.Logger
}

func newStore(ctx context.Context, js jetstream.JetStream, o Options) (*Store, error) {
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := codec.ValidateName("namespace", o.Namespace); err != nil {
		return nil, err
	}
	if err := o.Want.Validate(); err != nil {
		return nil, err
	}
	made := make(chan wire, 1)
	go func() { made <- newWire(js) }() // newWire may wait for the connection's lock
	var w wire
	select {
	case w = <-made:
	case <-ctx.Done():
		return nil, fmt.Errorf("open namespace %q: %w: %w", o.Namespace, job.ErrUnknown, context.Cause(ctx))
	}
	w.stamp = o.Stamp
	if server := w.link().connectedServer(); !atLeast(server.version, 2, 11) { // batched direct gets
		return nil, fmt.Errorf("nats-server %s on %s is too old: 2.11 or newer is needed", server.version, server.url)
	}
	s := &Store{wire: w, namespace: o.Namespace, audit: auditEvery, readOnly: o.ReadOnly, trace: o.Trace, log: o.Logger}
	s.headers = newHeaders(s.slotStream())
	return s, nil
}

// atLeast reports whether the server's version is major.minor or newer. While the server
// is away its version is unknown, and the result is true: a later request
// reveals an older server.
func atLeast(version string, major, minor int) bool {
	var x, y int
	if _, err := fmt.Sscanf(version, "%d.%d", &x, &y); err != nil {
		return true
	}
	return x > major || x == major && y >= minor
}

// schedules reports whether the server supports message schedules and atomic batches.
func (s *Store) schedules() bool { return atLeast(s.link().connectedServer().version, 2, 12) }

// Settings returns the namespace's settings as they were stored when Open read them.
func (s *Store) Settings() job.Settings { return s.settings }

// Registry returns the creation time of the registry's bucket, as Open found it.
func (s *Store) Registry() time.Time { return s.registry }

// Domain returns the JetStream domain of the caller's client, or "".
func (s *Store) Domain() string { return s.js.Options().Domain }

// Namespace returns the name of the opened namespace.
func (s *Store) Namespace() string { return s.namespace }

// Time asks the broker for its current time.
func (s *Store) Time(ctx context.Context) (now time.Time, err error) {
	err = s.ask(ctx, "ask the server for its time", s.api("STREAM.INFO."+s.slotStream()), func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, s.slotStream())
		if err == nil {
			now = s.stamped(stream.CachedInfo().TimeStamp)
		}
		return err
	})
	return now, err
}

// Ledger returns the store of slot records.
func (s *Store) Ledger() *Ledger { return &Ledger{s.bucket("ledger")} }

// Jobs returns the registry.
func (s *Store) Jobs() *Jobs { return &Jobs{s} }

// Nodes returns the store of node records.
func (s *Store) Nodes() *Nodes { return &Nodes{s} }

// Watermark returns the store of the watermark.
func (s *Store) Watermark() *Watermark { return &Watermark{s.bucket("state")} }

// Locks returns the store of the jobs' locks.
func (s *Store) Locks() *Locks { return &Locks{s, s.bucket("state")} }

// Slots returns the stream of slots to run.
func (s *Store) Slots() *Slots { return &Slots{s} }

// Producers returns the channel through which producers announce slots to each other.
func (s *Store) Producers() *Producers { return &Producers{s} }

// Timers returns the triggered runs that are not due yet.
func (s *Store) Timers() *Timers { return &Timers{s} }

func (s *Store) slotStream() string { return s.namespace + "_slots" }

func (s *Store) timerStream() string { return timerStream(s.namespace) }

// EventSubject returns the subject of events of one kind about one job (or node). Kinds
// and names are single tokens.
func (s *Store) EventSubject(kind, job string) string {
	return s.namespace + ".event." + kind + "." + job
}

// Emit publishes an event as a core NATS message. Subscribers receive it, and the stream
// <namespace>_events keeps the exceptional kinds. Nothing waits for either, and nothing
// may depend on it.
//
// Emit returns when the connection has the event, or after a second. After Emit the
// connection may be closed. EmitEvent does not wait.
func (s *Store) Emit(kind, job string, data []byte) error {
	s.say(kind, job, data)
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	return s.Flush(ctx)
}

func (s *Store) say(kind, job string, data []byte) {
	s.transport.say(s.EventSubject(kind, job), "", data, time.Time{})
}

// EmitEvent publishes e like Emit, and does not wait. If the event is too large for the
// server, EmitEvent shortens the event's error.
func (s *Store) EmitEvent(e job.Event) error {
	name := e.Job
	if name == "" {
		name = core.NoJob
	}
	data, err := core.MarshalEvent(e, s.room())
	if err != nil {
		return err
	}
	s.say(string(e.Kind), name, data)
	return nil
}

// EnoughPayload is the smallest max_payload with which a server accepts every payload,
// and every usual output, uncut.
const EnoughPayload = 512 << 10

// MaxPayload returns the server's limit for a message, or 0 while it is unknown.
func (s *Store) MaxPayload() int { return s.link().maxPayload() }

// takes rejects the payload of a triggered run if the server would not accept it, in a
// slot's message or, as base64, in its record. The error wraps job.ErrInvalid.
func (s *Store) takes(payload []byte) error {
	const rest = 8 << 10 // of the record, without the payload
	limit := s.MaxPayload()
	most := (limit - headerRoom - rest) * 3 / 4
	if limit == 0 || len(payload) == 0 || len(payload) <= most {
		return nil
	}
	return fmt.Errorf("%w payload: %d bytes, at most %d, for the server's max_payload is %d: store it elsewhere and pass its name, or raise the limit",
		job.ErrInvalid, len(payload), max(most, 0), limit)
}

// Flush waits until the connection has everything that was sent, or until ctx ends. Call
// it before you close the connection.
func (s *Store) Flush(ctx context.Context) error { return s.transport.flush(ctx) }

// Connected reports whether there is a connection, as the connection last reported. It
// does not block.
func (s *Store) Connected() bool { return s.link().connected.Load() }

// Closed returns a channel that is closed when the connection is closed for good.
func (s *Store) Closed() <-chan struct{} { return s.link().closed }

// Reconnects returns how often the connection was lost and restored since Open. It does
// not block.
func (s *Store) Reconnects() uint64 { return s.link().found.Load() }
