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

// Nodes is who is alive; *kv.Nodes is one.
type Nodes interface {
	List(ctx context.Context) ([]core.NodeEvent, error)
}

// Ledger is what became of each slot; *kv.Ledger is one.
type Ledger interface {
	Read(ctx context.Context, s job.Slot) (job.Record, uint64, error)
	Write(ctx context.Context, r job.Record, revision uint64) (uint64, error)
	List(ctx context.Context, f kv.ListFilter) iter.Seq2[kv.LedgerEntry, error]
}

// Config of a Control. An operation needs the parts that it is about.
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

	// Settings are those of the namespace.
	Settings job.Settings

	// Now asks for the broker's time.
	Now func(context.Context) (time.Time, error)

	// Who is the person, as the registry keeps it and others are told:
	// "alice@laptop".
	Who string

	// Alive is called whenever the broker has answered, and while this process computes
	// between two questions. Nil: no caller waits for it.
	Alive func()
}

// Control carries out an operator's orders, in the name of one person. It is safe
// for concurrent use.
type Control struct{ cfg Config }

// maxWho bounds Config.Who, in bytes: a longer one is cut, since a record that names it
// must remain readable.
const maxWho = 200

// New returns a Control.
func New(cfg Config) *Control {
	if cfg.Alive == nil {
		cfg.Alive = func() {}
	}
	cfg.Who = strings.ToValidUTF8(cfg.Who[:min(len(cfg.Who), maxWho)], "")
	return &Control{cfg}
}

// ConflictError says that somebody else changed a job between our look at it and
// our write: nothing of ours was written. It answers to job.ErrConflict.
type ConflictError struct {
	Job string

	// Removed says that the job is not there any more; who removed it is not
	// recorded. Else the others tell who wrote what stands there now.
	Removed  bool
	By       string
	Owner    string
	At       time.Time
	Revision uint64
}

func (e *ConflictError) Error() string {
	if e.Removed {
		return fmt.Sprintf("job %s was removed meanwhile, and is left as it is", e.Job)
	}
	return fmt.Sprintf("job %s was changed meanwhile by %q (%s) at %s, revision %d, and is left as that has it",
		e.Job, e.By, e.Owner, e.At.UTC().Format(time.RFC3339), e.Revision)
}

// Is answers to job.ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == job.ErrConflict }

// read reads a job's entry at the registry's leader. *job.EntryError: what stands
// there is broken.
func (c *Control) read(ctx context.Context, name string) (core.Entry, error) {
	if err := codec.ValidateName("job", name); err != nil {
		return core.Entry{}, err
	}
	e, _, err := c.cfg.Jobs.Read(ctx, name)
	c.cfg.Alive()
	return e, err
}

// write stores d at revision, and says who was faster.
func (c *Control) write(ctx context.Context, d core.Definition, revision uint64) (uint64, error) {
	d.Nonce = rand.Text()
	won, err := c.cfg.Jobs.Write(ctx, d, revision)
	return won, c.explain(ctx, d.Job.Name, err)
}

// explain turns a conflict into a ConflictError.
func (c *Control) explain(ctx context.Context, name string, err error) error {
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
		return fmt.Errorf("job %s: %w meanwhile; who, cannot be said: %w", name, job.ErrConflict, err)
	}
	return &ConflictError{Job: name, By: now.Node, Owner: now.Owner, At: now.Time, Revision: revision}
}

// atOnce is how many things the broker is asked about at once.
const atOnce = 16

// each calls f for 0 to n-1, some at a time, until one fails.
func (c *Control) each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return f(ctx, i) })
	}
	return group.Wait()
}

// Broken takes apart what a list of jobs could not read. rest is what else went
// wrong.
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

// Place is where a row stands in its listing: the rows are in the order of their
// places, as strings. A listing goes on after the place of the row that was seen
// last, though that row be gone. What it is made of is nobody else's business.
// Empty: before all rows.
type Place string

const placeTime = "2006-01-02T15:04:05.000000000Z"

func placeOf(t time.Time, name string) Place { return Place(t.UTC().Format(placeTime) + " " + name) }

// checkTime refuses what is no place among slots or nodes, with an error that wraps
// job.ErrInvalid.
func (p Place) checkTime() error {
	text, _, ok := strings.Cut(string(p), " ")
	if _, err := time.Parse(placeTime, text); p != "" && (err != nil || !ok || len(text) != len(placeTime)) {
		return p.wrong()
	}
	return nil
}

func (p Place) wrong() error {
	return fmt.Errorf("%w place %.80q: want one that a listing ended with", job.ErrInvalid, string(p))
}

// placed is a row of a listing.
type placed interface{ Place() Place }

// after are the rows that come after a place.
func after[T placed](rows []T, place Place) []T {
	if place == "" {
		return rows
	}
	return slices.DeleteFunc(rows, func(row T) bool { return row.Place() <= place })
}
