package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Client carries out the orders and answers the questions of one operator. It is safe for
// concurrent use, and needs no closing: see New for what it leaves on the connection. The
// connection belongs to the caller.
type Client struct {
	cfg     attach.Parts
	waiters *waiters
}

// Option changes how New opens a Client. New returns an error if a value is invalid or an option is
// nil. The names of namespaces and domains have 1 to 64 characters of A-Z a-z 0-9 _ -.
type Option func(*options) error

type options struct{ namespace, domain, operator string }

// WithNamespace selects the namespace. Default: job.DefaultNamespace.
func WithNamespace(name string) Option {
	return func(o *options) error {
		o.namespace = name
		return codec.ValidateName("namespace", name)
	}
}

// WithDomain sets the JetStream domain of the namespace, for a connection to a leaf node.
// Default: the domain of the server that the connection is connected to.
func WithDomain(name string) Option {
	return func(o *options) error {
		o.domain = name
		return codec.ValidateName("domain", name)
	}
}

// WithOperator names the person or program that gives the orders, like "alice@laptop": at
// most job.MaxToken bytes of text. Records, the registry and events keep it, and conflicts
// name it. It is information, not proof. Default: the name of the host.
func WithOperator(name string) Option {
	return func(o *options) error {
		o.operator = name
		if err := job.ValidateToken(name); err != nil {
			return fmt.Errorf("operator: %w", err)
		}
		return nil
	}
}

// New opens a namespace on the JetStream of a connection. It creates nothing: if the
// namespace does not exist, the error wraps job.ErrNotFound. The error wraps job.ErrDenied
// if the login may not read the namespace, and job.ErrInvalid if an option is invalid.
//
// If the connection has no server, New waits for one until ctx ends; the error then wraps
// job.ErrUnknown.
//
// The first call for a connection leaves two goroutines and a subscription, which end when the
// connection is closed. Each call reads the namespace, so create one client for a connection rather
// than one for each request. As returns further clients at no cost.
func New(ctx context.Context, nc *nats.Conn, opts ...Option) (*Client, error) {
	o := options{namespace: job.DefaultNamespace}
	for i, option := range opts {
		if option == nil {
			return nil, fmt.Errorf("%w option: number %d is nil", job.ErrInvalid, i)
		}
		if err := option(&o); err != nil {
			return nil, err
		}
	}
	if nc == nil {
		return nil, fmt.Errorf("%w connection: it is nil", job.ErrInvalid)
	}
	js, err := jetstream.New(nc)
	if o.domain != "" {
		js, err = jetstream.NewWithDomain(nc, o.domain)
	}
	if err != nil {
		return nil, err
	}
	store, err := kv.Open(ctx, js, kv.Options{Namespace: o.namespace, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	if o.operator == "" {
		o.operator, _ = os.Hostname() // only shown
	}
	return Attach(attach.Of(nc, store, attach.Options{Operator: o.operator})), nil
}

// maxOperator bounds the operator's name, in bytes. Attach cuts a longer one, because readers refuse
// a value with a name of more than codec.MaxWord bytes.
const maxOperator = 200

// Attach returns a client of parts that a package of this module has opened already. Other programs
// cannot make Parts: call New, or (*cronce.Scheduler).Client.
func Attach(p attach.Parts) *Client {
	if p.Alive == nil {
		p.Alive = func() {}
	}
	if p.Joined == nil {
		p.Joined = func(context.Context, string) error { return nil }
	}
	p.Operator = strings.ToValidUTF8(p.Operator[:min(len(p.Operator), maxOperator)], "")
	return &Client{cfg: p, waiters: &waiters{}}
}

// atOnce bounds the concurrent requests of one operation.
const atOnce = 16

// each calls f for 0 to n-1, atOnce of them concurrently. If one fails, the context of all others
// ends, and each returns the first error.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return f(ctx, i) })
	}
	return group.Wait()
}

// readable iterates over the values that can be read. It appends the errors of the others to
// unreadable, unless that is nil. It yields each error that concerns more than one value.
func readable[T any](c *Client, values iter.Seq2[T, error], unreadable *[]error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for value, err := range values {
			c.cfg.Alive()
			switch {
			case !exchange.IsUnreadable(err):
				if !yield(value, err) {
					return
				}
			case unreadable != nil:
				*unreadable = append(*unreadable, err)
			}
		}
	}
}

// As returns a client that gives orders in the name of another operator, like the user of a web
// server, and that shares everything else with c. The error wraps job.ErrInvalid if WithOperator
// would refuse the name.
func (c *Client) As(operator string) (*Client, error) {
	if err := job.ValidateToken(operator); err != nil {
		return nil, fmt.Errorf("operator: %w", err)
	}
	other := *c
	other.cfg.Operator = operator
	return &other, nil
}

// Rights are the groups of orders that the connection's login may give.
type Rights struct {
	// Edit is for applying, pausing, resuming, releasing and removing jobs.
	Edit bool

	// Start is for triggering jobs, publishing the slots of the past, and repairing.
	Start bool

	// Reopen is for retrying and cancelling slots.
	Reopen bool
}

// Rights asks the server what the login may do. The answer helps a user interface to leave out
// what cannot work; the server decides. The error wraps job.ErrDenied if the login may not ask, as
// with the permissions that older versions of "cronce auth" print.
func (c *Client) Rights(ctx context.Context) (Rights, error) {
	if c.cfg.Store == nil {
		return Rights{}, fmt.Errorf("ask for the rights of the login: %w: the client has no connection", job.ErrUnknown)
	}
	login, err := c.cfg.Store.Permissions(ctx)
	if err != nil {
		return Rights{}, fmt.Errorf("ask for the rights of the login: %w", err)
	}
	may := func(subjects []string) bool {
		return !slices.ContainsFunc(subjects, func(s string) bool { return !login.MayPublish(s) })
	}
	jobs, runs, slots := layout.Access{Namespace: c.cfg.Store.Namespace, Domain: c.cfg.Store.Domain()}.Ordering()
	return Rights{Edit: may(jobs), Start: may(runs), Reopen: may(slots)}, nil
}

// ConflictError reports that another writer changed a job after this operation had read
// it. The operation changed nothing. It matches job.ErrConflict.
type ConflictError struct {
	Job string

	// Removed reports that the job was removed. The registry does not record which writer did it.
	Removed bool

	// By, Owner and At describe the write of the other writer. They are not set if it removed the
	// job, and At is not set if the job's definition cannot be read.
	By       string
	Owner    string
	At       time.Time
	Revision uint64
}

func (e *ConflictError) Error() string {
	if e.Removed {
		return fmt.Sprintf("job %s was removed meanwhile: this operation changed nothing", e.Job)
	}
	return fmt.Sprintf("job %s was changed meanwhile by %q (%s) at %s, revision %d: this operation changed nothing",
		e.Job, e.By, e.Owner, e.At.UTC().Format(time.RFC3339), e.Revision)
}

// Is matches job.ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == job.ErrConflict }

func newConflict(name string, e plans.Entry, revision uint64) *ConflictError {
	return &ConflictError{Job: name, By: e.Node, Owner: e.Owner, At: e.Time, Revision: revision}
}

// read returns a job's entry, read at the registry's leader. The error is a *plans.EntryError if
// the definition cannot be read.
func (c *Client) read(ctx context.Context, name string) (plans.Entry, error) {
	if err := codec.ValidateName("job", name); err != nil {
		return plans.Entry{}, err
	}
	e, _, err := c.cfg.Jobs.Read(ctx, name)
	c.cfg.Alive()
	if errors.Is(err, job.ErrNotFound) {
		err = fmt.Errorf("job %s: %w", name, err)
	}
	return e, err
}

// write stores d at revision. If another write was first, the error is a ConflictError.
func (c *Client) write(ctx context.Context, d plans.Definition, revision uint64) (uint64, error) {
	d.Nonce = rand.Text()
	won, err := c.cfg.Jobs.Write(ctx, d, revision)
	return won, c.conflict(ctx, d.Job.Name, err)
}

// conflict turns job.ErrConflict into a ConflictError.
func (c *Client) conflict(ctx context.Context, name string, err error) error {
	c.cfg.Alive()
	if !errors.Is(err, job.ErrConflict) {
		return err
	}
	now, revision, err := c.cfg.Jobs.Read(ctx, name)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return &ConflictError{Job: name, Removed: true, Revision: revision}
	case exchange.IsUnreadable(err):
		return &ConflictError{Job: name, By: "a newer program", Owner: "unknown", Revision: revision}
	case err != nil:
		return fmt.Errorf("job %s: %w: cannot read the other write: %w", name, job.ErrConflict, err)
	}
	return newConflict(name, now, revision)
}

// ordered publishes an event about an order that was carried out, so that users can find out later
// which operator gave it. If the event is lost, the order is still in effect.
func (c *Client) ordered(ctx context.Context, order string, e job.Event) {
	if c.cfg.Fleet == nil {
		return // a client of a test that has no events
	}
	e.Kind, e.Order = job.EventOrdered, order
	if e.Time.IsZero() && c.cfg.Now != nil {
		e.Time, _ = c.cfg.Now(ctx)
	}
	if e.Time.IsZero() {
		e.Time = time.Now() // the broker does not answer any more, or ctx has ended
	}
	e.Time = e.Time.UTC()
	c.emit(e)
}

// emit publishes an event once, as workers do. A repeated copy would look like a second
// outcome.
func (c *Client) emit(e job.Event) {
	e.V, e.Node = codec.Version, c.cfg.Operator
	_ = c.cfg.Fleet.EmitAndFlush(e)
}

// Cursor is the position of a row in its listing. The rows of a listing are in the order of their
// cursors as strings. A listing continues after a cursor even if that row no longer exists. The empty
// cursor is before all rows. Do not rely on what a cursor contains.
type Cursor string

const cursorTime = "2006-01-02T15:04:05.000000000Z"

func timeCursor(t time.Time, name string) Cursor {
	return Cursor(t.UTC().Format(cursorTime) + " " + name)
}

// checkTime returns an error that wraps job.ErrInvalid if p is not a cursor of slots or nodes.
func (p Cursor) checkTime() error {
	text, _, ok := strings.Cut(string(p), " ")
	if _, err := time.Parse(cursorTime, text); p != "" && (err != nil || !ok || len(text) != len(cursorTime)) {
		return p.wrong()
	}
	return nil
}

func (p Cursor) wrong() error {
	return fmt.Errorf("%w cursor %.80q: must be one that a listing returned", job.ErrInvalid, string(p))
}

// after returns the rows of a listing after a cursor.
func after[T interface{ Cursor() Cursor }](rows []T, cursor Cursor) []T {
	if cursor == "" {
		return rows
	}
	return slices.DeleteFunc(rows, func(row T) bool { return row.Cursor() <= cursor })
}

// workers are the live nodes that run slots.
type workers []worker

// worker is a node with its handlers.
type worker struct {
	exchange.Node
	handlers exchange.HandlerSet
}

// workers returns the live workers at the broker's time now. It leaves out nodes that have
// been silent for their lease, although only a fence proves a node dead.
func (c *Client) workers(ctx context.Context, now time.Time) (workers, error) {
	events, err := c.cfg.Nodes.List(ctx)
	c.cfg.Alive()
	var live workers
	for _, e := range events {
		if e.Node.Worker && e.Alive(now) {
			live = append(live, worker{Node: e.Node})
		}
	}
	if err != nil || len(live) == 0 {
		return live, err
	}
	lists, err := c.cfg.Handlers.Latest(ctx, codec.Map(live, func(w worker) string { return w.Name }))
	c.cfg.Alive()
	for i := range live {
		live[i].handlers = lists[live[i].Name].Set()
	}
	return live, err
}

// of returns the names of the workers that would run the job: those that work on its queue and have, or
// may have, a handler for it.
func (w workers) of(j job.Job) []string {
	j = j.WithDefaults()
	var names []string
	for _, n := range w {
		if n.handlers.MayHandle(j.Name) && slices.Contains(n.Queues, j.Queue) {
			names = append(names, n.Name)
		}
	}
	return names
}
