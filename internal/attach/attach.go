// Package attach has the parts that package client works on. A test can replace a part, and a
// package of this module can make a client of a store that is already open:
// client.Attach(attach.Of(...)). Programs outside this module use client.New.
package attach

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Jobs is the registry. *kv.Jobs implements it.
type Jobs interface {
	Read(ctx context.Context, name string) (plans.Entry, uint64, error)
	Write(ctx context.Context, d plans.Definition, revision uint64) (uint64, error)
	Delete(ctx context.Context, name string, revision uint64) error
	List(ctx context.Context) ([]plans.Entry, error)
}

// Nodes is the bucket of node records. *kv.Nodes implements it.
type Nodes interface {
	List(ctx context.Context) ([]exchange.NodeEvent, error)
}

// Handlers has the nodes' lists of handlers. *kv.HandlerLists implements it.
type Handlers interface {
	Latest(ctx context.Context, nodes []string) (map[string]exchange.Handlers, error)
}

// Ledger is the bucket of slot records. *kv.Ledger implements it.
type Ledger interface {
	Read(ctx context.Context, s job.Slot) (job.Record, uint64, error)
	Write(ctx context.Context, r job.Record, revision uint64) (uint64, error)
	List(ctx context.Context, f kv.ListFilter) iter.Seq2[kv.LedgerEntry, error]
	Newest(ctx context.Context, job string) iter.Seq2[kv.LedgerEntry, error]
	Records(ctx context.Context, slots []job.Slot) (map[job.Slot]kv.LedgerEntry, error)
}

// Slots is the stream of slots. *stream.Slots implements it.
type Slots interface {
	Waiting(ctx context.Context, f stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error]
	Put(ctx context.Context, queue string, m core.Message, payload []byte) (duplicate bool, err error)
	PutAt(ctx context.Context, queue string, m core.Message, payload []byte) (sequence uint64, duplicate bool, err error)
	At(ctx context.Context, sequence uint64) (stream.WaitingSlot, error)
}

// Timers is the stream of triggered runs that are not due yet. *stream.Timers implements it.
type Timers interface {
	Read(ctx context.Context, s job.Slot) (stream.Timer, uint64, error)
	Set(ctx context.Context, t stream.Timer, revision uint64) (uint64, error)
	Cancel(ctx context.Context, s job.Slot) error
	MaySet(job string) bool
	Latest(ctx context.Context, slots []job.Slot) (map[job.Slot]stream.Timer, error)
	Waiting(ctx context.Context, f stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error]
}

// Watermark reads how far slots are published. *kv.Watermark implements it.
type Watermark interface {
	Read(ctx context.Context) (exchange.Watermark, uint64, error)
}

// Locks reads the locks of jobs. *kv.Locks implements it.
type Locks interface {
	Read(ctx context.Context, name string) (core.Lock, uint64, error)
}

// Fleet reads the waiting slots and the stored events, publishes events, and sends requests to nodes.
// *kv.Store implements it.
type Fleet interface {
	Waiting(ctx context.Context, f stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error]
	Events(ctx context.Context, f kv.EventFilter) iter.Seq2[job.Event, error]
	StoreEvent(ctx context.Context, e job.Event) error
	EmitAndFlush(e job.Event) error
	AskCancel(ctx context.Context, node string, req core.CancelRequest) (core.CancelAnswer, error)
	AskLater(ctx context.Context, job string, request []byte) ([]byte, error)
	AskOutput(ctx context.Context, node string, s job.Slot, follow bool) (exchange.OutputAnswer, error)
}

// News delivers events as they happen, and reports when the connection was restored.
// *kv.Store implements it.
type News interface {
	Follow(job string, f func(job.Event)) (stop func(), err error)
	Reconnected() <-chan struct{}
	EventsAfter(ctx context.Context, job string, at *wire.Cursor, f func(job.Event, uint64, error) bool) error
	LastEvent(ctx context.Context) (uint64, error)
}

// Peers proves nodes dead. *node.Peers implements it.
type Peers interface {
	Dead(ctx context.Context, name, by string) (dead bool, wait time.Duration, err error)
}

// Parts are what a client works on. If a test calls only some operations of a client, it may
// leave out the parts that they do not use.
type Parts struct {
	Jobs      Jobs
	Nodes     Nodes
	Handlers  Handlers
	Ledger    Ledger
	Slots     Slots
	Timers    Timers
	Watermark Watermark
	Locks     Locks
	Fleet     Fleet
	News      News
	Peers     Peers

	// Settings are the namespace's.
	Settings job.Settings

	// Now returns the broker's time.
	Now func(context.Context) (time.Time, error)

	// Operator is the person or program that gives the orders, like "alice@laptop". It is stored in
	// the registry and the ledger; conflicts and events show it.
	Operator string

	// NoList reports whether the login may not list what waits in the streams.
	NoList bool

	// Joined waits until the registry has a job that this process is about to write. May be nil.
	Joined func(ctx context.Context, name string) error

	// Alive is called after each answer of the broker, and during long computations, so that the
	// caller can notice a silent broker. May be nil.
	Alive func()

	// Conn and Store are the connection and the store of the parts. They are nil in tests that
	// replace parts. Operations that need them then fail.
	Conn  *nats.Conn
	Store *kv.Store
}

// Options are the options of Of. Only Operator is required.
type Options struct {
	// Operator, Alive and Joined become the fields of Parts with these names.
	Operator string
	Alive    func()
	Joined   func(ctx context.Context, name string) error

	// Now returns the time that is recorded when the client declares a node dead. Default:
	// time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// Of returns the parts of an open store. nc is the store's connection.
func Of(nc *nats.Conn, store *kv.Store, o Options) Parts {
	if o.Now == nil {
		o.Now = time.Now
	}
	store = store.ForOperator()
	peers := node.NewPeers(node.PeersConfig{
		Store: store.Nodes(), Lease: store.Settings().Lease, Now: o.Now, Logger: o.Logger,
		Fenced: func(dead, by string) {
			_ = store.EmitAndFlush(job.Event{V: codec.Version, Kind: job.EventFenced, Time: o.Now().UTC(), Node: by, Peer: dead})
		},
	})
	return Parts{
		Jobs: store.Jobs(), Nodes: store.Nodes(), Handlers: store.HandlerLists(), Ledger: store.Ledger(), Slots: store.Slots(), Timers: store.Timers(),
		Watermark: store.Watermark(), Locks: store.Locks(), Fleet: store, News: store, Peers: peers, Settings: store.Settings(),
		Now: store.Time, Operator: o.Operator, Alive: o.Alive, Joined: o.Joined, Conn: nc, Store: store,
		NoList: !store.MayList(),
	}
}
