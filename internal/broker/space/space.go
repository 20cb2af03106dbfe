// Package space opens one namespace on the broker, creates and changes what belongs to it,
// and opens the consumers of its streams.
//
//   - Opening (open.go). Open inspects everything before it creates anything, and updates
//     nothing. A revision-checked write stores the settings (settings.go), so concurrent
//     creators agree.
//   - Changing (setup.go, queue.go). Setup changes what exists, SetUpAgain creates what was
//     removed, Examine (survey.go) reports what Setup would change, Remove deletes all.
//   - Consumers: of queues (queue.go), of alerts (feed.go), and those whose messages start
//     jobs (on.go).
package space

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Options select the namespace to open and how to open it.
type Options struct {
	// Namespace is the prefix of all names on the broker, so that several namespaces can
	// share an account. If it is empty, it is job.DefaultNamespace.
	Namespace string

	// Want are the settings that the caller requires. For each zero field, Open adopts
	// the stored value, or the default if none is stored yet. Setup keeps the stored
	// value.
	Want job.Settings

	// ReadOnly makes Open create nothing. If the namespace is not set up, the error is
	// job.ErrNotFound. Writes are possible. With ReadOnly, each write that the server does
	// not permit fails with job.ErrDenied. Without it, such a write of a record, a lock, a
	// timer or the watermark is repeated instead.
	ReadOnly bool

	// Queues are the queues whose missing consumers Setup creates.
	Queues []string

	// Stamp converts the broker's timestamps, for tests that run a fleet on its own
	// clock. It must return the same result for the same timestamp, and keep their order.
	// If it is nil, timestamps are not converted.
	Stamp func(time.Time) time.Time

	// Trace starts the trace of every publication. It may set the message's Traceparent.
	// If it returns a function, that is called with the result of the publication. If Trace
	// is nil, nothing is traced.
	Trace func(queue string, m *core.Message) (ended func(duplicate bool, err error))

	// Logger logs events that no caller receives as an error. If it is nil, nothing is
	// logged.
	Logger *slog.Logger
}

// Space is one namespace on the broker: its names, its settings, and the connection to it. It
// is safe for concurrent use.
type Space struct {
	wire.Wire
	Namespace  string
	settings   job.Settings
	reconnects uint64              // the link's, when the namespace was opened
	registry   time.Time           // creation time of the registry's bucket
	Audit      time.Duration       // interval between the audits of a watch
	Plans      *plans.EntryDecoder // decodes stored definitions
	FailDenied bool                // each write that the server does not permit fails with job.ErrDenied
	atomic     map[string]bool     // streams that allow atomic batches
	login      layout.Permissions  // zero: everything is permitted, or the permissions are not known
	Trace      func(queue string, m *core.Message) (ended func(duplicate bool, err error))
	Log        *slog.Logger
}

// newSpace checks the options and the server's version, and reads nothing from the broker.
func newSpace(ctx context.Context, js jetstream.JetStream, o Options) (*Space, error) {
	o.Namespace = cmp.Or(o.Namespace, job.DefaultNamespace)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if err := codec.ValidateName("namespace", o.Namespace); err != nil {
		return nil, err
	}
	if err := o.Want.Validate(); err != nil {
		return nil, err
	}
	made := make(chan wire.Wire, 1)
	go func() { made <- wire.NewWire(js) }() // NewWire may wait for the connection's lock
	var w wire.Wire
	select {
	case w = <-made:
	case <-ctx.Done():
		return nil, fmt.Errorf("open namespace %q: %w: %w", o.Namespace, job.ErrUnknown, context.Cause(ctx))
	}
	w.Stamp = o.Stamp
	if server := w.Link().ConnectedServer(); !server.AtLeast(2, 11) { // batched direct gets
		return nil, fmt.Errorf("nats-server %s on %s is too old: 2.11 or newer is needed, 2.14 or newer recommended", server.Version, server.URL)
	}
	return &Space{Wire: w, Namespace: o.Namespace, reconnects: w.Link().Reconnects.Load(), Audit: wire.AuditEvery, Plans: new(plans.EntryDecoder), FailDenied: o.ReadOnly, Trace: o.Trace, Log: o.Logger, atomic: map[string]bool{}}, nil
}

// Schedules reports whether the server supports message schedules and atomic batches.
func (s *Space) Schedules() bool { return s.Link().ConnectedServer().AtLeast(2, 12) }

// Settings returns the namespace's settings as they were stored when Open read them.
func (s *Space) Settings() job.Settings { return s.settings }

// RegistryCreated returns the creation time of the registry's bucket, as Open found it.
func (s *Space) RegistryCreated() time.Time { return s.registry }

// Domain returns the JetStream domain of the caller's client, or "".
func (s *Space) Domain() string { return s.JS.Options().Domain }

// Time asks the broker for its current time.
func (s *Space) Time(ctx context.Context) (time.Time, error) {
	info, err := s.StreamInfo(ctx, "ask the server for its time", s.SlotStream())
	if err != nil {
		return time.Time{}, err
	}
	return s.Stamped(info.TimeStamp), nil
}

// LastSequence asks the broker for the last sequence of a stream. doing names the request in errors.
func (s *Space) LastSequence(ctx context.Context, doing, stream string) (uint64, error) {
	info, err := s.StreamInfo(ctx, doing, stream)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// WithFailDenied returns the same namespace with FailDenied set.
func (s *Space) WithFailDenied() *Space {
	failing := *s
	failing.FailDenied = true
	return &failing
}

// Atomic reports whether the stream allowed atomic batches when the namespace was opened.
func (s *Space) Atomic(stream string) bool { return s.atomic[stream] }

// MayList reports whether the login may list the waiting slots. If that is not known, it returns
// true.
func (s *Space) MayList() bool { return s.login.MayPublish(s.API("DIRECT.GET." + s.SlotStream())) }

// MayPublish reports whether the login may publish on every subject of the pattern. If that is not
// known, it returns true.
func (s *Space) MayPublish(pattern string) bool { return s.login.MayPublish(pattern) }

// Bucket returns the namespace's bucket of that name.
func (s *Space) Bucket(what string) wire.Bucket {
	name := layout.Bucket(s.Namespace, what)
	return wire.Bucket{Wire: s.Wire, Name: name, Stream: "KV_" + name, Root: "$KV." + name + ".", FailDenied: s.FailDenied, Atomic: s.Atomic("KV_" + name)}
}

// SlotStream, TimerStream and EventStream return the names of the namespace's streams.
func (s *Space) SlotStream() string { return layout.SlotStream(s.Namespace) }

func (s *Space) WaitingStream() string { return layout.WaitingStream(s.Namespace) }

func (s *Space) TimerStream() string { return layout.TimerStream(s.Namespace) }

func (s *Space) EventStream() string { return layout.EventStream(s.Namespace) }

// EventSubject returns the subject of events of one kind about one job, or about none if job is
// exchange.NoJob. "*" stands for every kind or job.
func (s *Space) EventSubject(kind, job string) string {
	return s.Namespace + ".event." + kind + "." + job
}

// MaxPayload returns the server's limit for a message, or 0 while it is unknown.
func (s *Space) MaxPayload() int { return s.Link().MaxPayload() }

// CheckPayload rejects the payload of a triggered run if the server would not accept it, in a
// slot's message or, as base64, in its record. The error wraps job.ErrInvalid.
func (s *Space) CheckPayload(payload []byte) error {
	const rest = 8 << 10 // room for the other members of the record
	limit := s.MaxPayload()
	most := (limit - wire.HeaderRoom - rest) * 3 / 4
	if limit == 0 || len(payload) == 0 || len(payload) <= most {
		return nil
	}
	return fmt.Errorf("%w payload: %d bytes: must be at most %d, because the server's max_payload is %d: store it elsewhere and pass its name, or raise the limit",
		job.ErrInvalid, len(payload), max(most, 0), limit)
}

// Flush waits until everything that was sent before has been written to the connection, or until
// ctx ends. Call it before you close the connection.
func (s *Space) Flush(ctx context.Context) error { return s.Transport.Flush(ctx) }

// Connected reports whether there is a connection, as the connection last reported. It
// does not block.
func (s *Space) Connected() bool { return s.Link().Connected.Load() }

// Closed returns a channel that is closed when the connection is closed for good.
func (s *Space) Closed() <-chan struct{} { return s.Link().Closed }

// Reconnects returns how often the connection was restored since Open. It does not block.
func (s *Space) Reconnects() uint64 { return s.Link().Reconnects.Load() - s.reconnects }

// Watch calls f for every change of the bucket; see wire.Bucket.Watch.
func (s *Space) Watch(ctx context.Context, b wire.Bucket, whole bool, decode func(wire.Entry) any, f func(wire.Change)) error {
	return b.Watch(ctx, s.Log, s.Audit, whole, decode, f)
}
