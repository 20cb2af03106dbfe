package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Jobs is the registry; *kv.Jobs is one.
type Jobs interface {
	Read(ctx context.Context, name string) (core.Entry, uint64, error)
	Write(ctx context.Context, d core.Definition, revision uint64) (uint64, error)
	Delete(ctx context.Context, name string, revision uint64) error
	List(ctx context.Context) ([]core.Entry, error)
}

// Nodes are the stored nodes; *kv.Nodes is one.
type Nodes interface {
	List(ctx context.Context) ([]core.NodeEvent, error)
}

// Ledger has a record for each slot; *kv.Ledger is one.
type Ledger interface {
	Read(ctx context.Context, s job.Slot) (job.Record, uint64, error)
	Write(ctx context.Context, r job.Record, revision uint64) (uint64, error)
	List(ctx context.Context, f kv.ListFilter) iter.Seq2[kv.LedgerEntry, error]
}

// Config of a Control. A program that uses only some operations may leave out the parts
// that those do not use.
type Config struct {
	Jobs      Jobs
	Nodes     Nodes
	Ledger    Ledger
	Slots     Slots
	Timers    Timers
	Watermark Watermark
	Locks     Locks
	Fleet     Fleet
	Peers     Peers

	// Settings are the namespace's.
	Settings job.Settings

	// Now returns the broker's time.
	Now func(context.Context) (time.Time, error)

	// Operator is the person or program that gives the orders, like "alice@laptop". The
	// registry and the ledger keep it, and conflicts and events show it.
	Operator string

	// Alive is called after each answer of the broker, and during long computations. A
	// caller uses it to notice a silent broker. May be nil.
	Alive func()
}

// Control carries out the orders of one operator. It is safe for concurrent use.
type Control struct{ cfg Config }

// maxOperator bounds Config.Operator, in bytes. New cuts a longer one, since a record with
// it must fit the server's limits.
const maxOperator = 200

// New returns a Control.
func New(cfg Config) *Control {
	if cfg.Alive == nil {
		cfg.Alive = func() {}
	}
	cfg.Operator = strings.ToValidUTF8(cfg.Operator[:min(len(cfg.Operator), maxOperator)], "")
	return &Control{cfg}
}

// ConflictError reports that another writer changed a job after this operation had read
// it. The operation changed nothing. It matches job.ErrConflict.
type ConflictError struct {
	Job string

	// Removed reports that the job was removed. The registry does not record by whom.
	Removed bool

	// By, Owner and At describe the write that was first, if it was no removal.
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

// read returns a job's entry, read at the registry's leader. The error is a
// *core.EntryError if the definition cannot be read.
func (c *Control) read(ctx context.Context, name string) (core.Entry, error) {
	if err := codec.ValidateName("job", name); err != nil {
		return core.Entry{}, err
	}
	e, _, err := c.cfg.Jobs.Read(ctx, name)
	c.cfg.Alive()
	return e, err
}

// write stores d at revision. If another write was first, the error is a ConflictError.
func (c *Control) write(ctx context.Context, d core.Definition, revision uint64) (uint64, error) {
	d.Nonce = rand.Text()
	won, err := c.cfg.Jobs.Write(ctx, d, revision)
	return won, c.conflict(ctx, d.Job.Name, err)
}

// conflict turns job.ErrConflict into a ConflictError.
func (c *Control) conflict(ctx context.Context, name string, err error) error {
	c.cfg.Alive()
	if !errors.Is(err, job.ErrConflict) {
		return err
	}
	now, revision, err := c.cfg.Jobs.Read(ctx, name)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return &ConflictError{Job: name, Removed: true, Revision: revision}
	case core.IsUnreadable(err):
		return &ConflictError{Job: name, By: "a newer program", Owner: "unknown", Revision: revision}
	case err != nil:
		return fmt.Errorf("job %s: %w: cannot read the other write: %w", name, job.ErrConflict, err)
	}
	return &ConflictError{Job: name, By: now.Node, Owner: now.Owner, At: now.Time, Revision: revision}
}

// atOnce bounds the concurrent requests of one operation.
const atOnce = 16

// each calls f for 0 to n-1, atOnce of them concurrently, until one fails.
func (c *Control) each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return f(ctx, i) })
	}
	return group.Wait()
}

// Broken splits the error of a list of jobs: entries are the definitions that cannot be
// read, and rest is any other error.
func Broken(err error) (entries []*core.EntryError, rest error) {
	parts := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		parts = joined.Unwrap()
	}
	for _, part := range parts {
		var broken *core.EntryError
		if errors.As(part, &broken) {
			entries = append(entries, broken)
		} else {
			rest = errors.Join(rest, part)
		}
	}
	return entries, rest
}

// Cursor is the position of a row in its listing. The rows of a listing are in the order of
// their cursors as strings. A listing continues after a cursor even if that row is gone.
// The empty cursor is before all rows. Do not rely on what a cursor contains.
type Cursor string

const cursorTime = "2006-01-02T15:04:05.000000000Z"

func timeCursor(t time.Time, name string) Cursor {
	return Cursor(t.UTC().Format(cursorTime) + " " + name)
}

// checkTime returns an error that wraps job.ErrInvalid if p is no cursor of slots or nodes.
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

// listed is a row of a listing.
type listed interface{ Cursor() Cursor }

// after returns the rows after a cursor.
func after[T listed](rows []T, cursor Cursor) []T {
	if cursor == "" {
		return rows
	}
	return slices.DeleteFunc(rows, func(row T) bool { return row.Cursor() <= cursor })
}
