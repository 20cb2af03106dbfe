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

// DefaultNamespace is the namespace of Options that name none.
const DefaultNamespace = job.DefaultNamespace

// Options say which namespace to open, and as what.
type Options struct {
	// Namespace begins all names on the broker, so that several can share an
	// account. Empty: DefaultNamespace.
	Namespace string

	// Want are the settings that the caller insists on. Open adopts what is
	// stored for every zero field, or its default when nothing is stored yet;
	// Setup keeps it.
	Want job.Settings

	// ReadOnly has Open create nothing: a namespace that is not set up is
	// job.ErrNotFound. It is for people: every write ends with job.ErrDenied when
	// the server does not permit it, as only those of the registry do else.
	ReadOnly bool

	// Queues are those whose consumers Setup creates, where there are none.
	Queues []string

	// Stamp reads the broker's timestamps by another clock, for a fleet that is
	// tested by one of its own. It must never change its mind about one, and keep
	// their order. Nil: they are read as they are.
	Stamp func(time.Time) time.Time

	// Trace begins the trace of a publication, of whichever reason: it may set the
	// message's Traceparent, and returns what is to be told how it ended, if anything
	// is. Nil: nothing is traced.
	Trace func(queue string, m *core.Message) (ended func(duplicate bool, err error))

	// Logger takes what goes on without a caller to tell. Nil: nothing is
	// logged.
	Logger *slog.Logger
}

// Store is one namespace on the broker. It and its parts are safe for
// concurrent use; it owns no goroutine and needs no closing.
type Store struct {
	wire
	headers   *headers // of slots
	namespace string
	settings  job.Settings
	registry  time.Time         // when its bucket was created
	audit     time.Duration     // of watches
	plans     core.EntryDecoder // of definitions that are read
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
	go func() { made <- newWire(js) }() // which may wait for the connection's lock
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

// atLeast reports whether the server's version is major.minor or newer. One that
// does not say its version, because it is away, is asked by what follows.
func atLeast(version string, major, minor int) bool {
	var x, y int
	if _, err := fmt.Sscanf(version, "%d.%d", &x, &y); err != nil {
		return true
	}
	return x > major || x == major && y >= minor
}

// schedules reports whether the server knows message schedules and atomic batches.
func (s *Store) schedules() bool { return atLeast(s.link().connectedServer().version, 2, 12) }

// Settings are those of the namespace, as they were stored when it was opened.
func (s *Store) Settings() job.Settings { return s.settings }

// Registry is when the bucket of the registry was created, as it was opened.
func (s *Store) Registry() time.Time { return s.registry }

// Domain is the JetStream domain that the caller's client has named, if it has.
func (s *Store) Domain() string { return s.js.Options().Domain }

// Namespace is the one that was opened.
func (s *Store) Namespace() string { return s.namespace }

// Time is the broker's clock: the time at which it answers.
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

// Ledger keeps what became of each slot.
func (s *Store) Ledger() *Ledger { return &Ledger{s.bucket("ledger")} }

// Jobs is the registry.
func (s *Store) Jobs() *Jobs { return &Jobs{s} }

// Nodes keeps who is alive.
func (s *Store) Nodes() *Nodes { return &Nodes{s} }

// Watermark keeps up to when every slot was published.
func (s *Store) Watermark() *Watermark { return &Watermark{s.bucket("state")} }

// Locks keeps which slots of a job may run.
func (s *Store) Locks() *Locks { return &Locks{s, s.bucket("state")} }

// Slots is the stream of slots to run.
func (s *Store) Slots() *Slots { return &Slots{s} }

// Producers is where producers talk to each other.
func (s *Store) Producers() *Producers { return &Producers{s} }

// Timers are the triggered runs whose time has not come.
func (s *Store) Timers() *Timers { return &Timers{s} }

func (s *Store) slotStream() string { return s.namespace + "_slots" }

func (s *Store) timerStream() string { return timerStream(s.namespace) }

// EventSubject is the subject on which events of one kind about one job (or
// node) are published. Kinds and names are single tokens.
func (s *Store) EventSubject(kind, job string) string {
	return s.namespace + ".event." + kind + "." + job
}

// Emit publishes an event. It is core NATS: whoever listens hears it, and the
// stream <namespace>_events keeps the exceptional kinds; nothing waits for either,
// and nothing may depend on it.
//
// It returns when the event is handed to the connection, which may be closed next, or
// after a second. EmitEvent does not wait.
func (s *Store) Emit(kind, job string, data []byte) error {
	s.say(kind, job, data)
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	return s.Flush(ctx)
}

func (s *Store) say(kind, job string, data []byte) {
	s.transport.say(s.EventSubject(kind, job), "", data, time.Time{})
}

// EmitEvent is Emit of an event, whose error is cut to what the server takes. It does not
// wait.
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

// EnoughPayload is the least max_payload of a server that takes every payload and every
// usual output uncut.
const EnoughPayload = 512 << 10

// MaxPayload is the server's limit for a message; 0: it is not known yet.
func (s *Store) MaxPayload() int { return s.link().maxPayload() }

// takes refuses a payload of a triggered run that the server does not take: neither in a
// slot's message nor, as base64, in its record. Its error wraps job.ErrInvalid.
func (s *Store) takes(payload []byte) error {
	const rest = 8 << 10 // of the record
	limit := s.MaxPayload()
	most := (limit - headerRoom - rest) * 3 / 4
	if limit == 0 || len(payload) == 0 || len(payload) <= most {
		return nil
	}
	return fmt.Errorf("%w payload: %d bytes, at most %d, for the server's max_payload is %d: store it elsewhere and pass its name, or raise the limit",
		job.ErrInvalid, len(payload), max(most, 0), limit)
}

// Flush waits until everything that was sent has been handed to the connection, or until
// ctx ends. Call it before you close the connection.
func (s *Store) Flush(ctx context.Context) error { return s.transport.flush(ctx) }

// Connected reports whether there is a broker, as the connection last told. It waits for
// nothing.
func (s *Store) Connected() bool { return s.link().connected.Load() }

// Closed is closed when the connection is closed for good.
func (s *Store) Closed() <-chan struct{} { return s.link().closed }

// Reconnects is how often the connection was lost and found again since Open. It waits
// for nothing.
func (s *Store) Reconnects() uint64 { return s.link().found.Load() }
