package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/job"
)

// complainAfter is how long the registry may take to answer before it is said
// what is waited for.
const complainAfter = 10 * time.Second

// Apply brings jobs into the registry: what is equal is not written, what an edit
// superseded is not brought back (unless force says that a person asks for it),
// and a stored definition that this program cannot read is left alone. It may be
// called while Run runs, and waits for a broker that is away until ctx ends.
func (r *Replica) Apply(ctx context.Context, jobs []job.Job, force bool) error {
	var entries []job.Entry
	err := r.answered(ctx, "read the job registry", func(ctx context.Context) (err error) {
		entries, err = r.cfg.Store.Jobs().List(ctx)
		return err
	})
	switch {
	case unreadable(err):
		r.log.Error("the registry holds definitions that cannot be read", "error", err)
	case err != nil:
		return err
	}
	known := map[string]*job.Entry{}
	for i := range entries {
		known[entries[i].Job.Name] = &entries[i]
	}
	for _, j := range jobs {
		err := r.apply(ctx, known[j.Name], j, force)
		if unreadable(err) {
			r.log.Error("the stored definition of this job cannot be read, and is left as it is", "job", j.Name, "error", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	return nil
}

// unreadable errors are about one stored definition, not about the registry.
func unreadable(err error) bool {
	return errors.Is(err, job.ErrVersion) || errors.Is(err, job.ErrInvalid)
}

// answered repeats ask until it is answered, saying now and then what it waits
// for.
func (r *Replica) answered(ctx context.Context, what string, ask func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, complainAfter)
		err := ask(attempt)
		cancel()
		if !errors.Is(err, job.ErrUnknown) || ctx.Err() != nil {
			return err
		}
		r.log.Warn("still waiting for an answer", "to", what, "error", err)
	}
}

// apply writes one definition. A conflict means that another replica wrote it
// meanwhile, most likely the same: it looks again.
func (r *Replica) apply(ctx context.Context, old *job.Entry, j job.Job, force bool) error {
	jobs := r.cfg.Store.Jobs()
	revision := uint64(0)
	for {
		next, change, err := job.Upsert(old, j, r.cfg.Owner, r.identity, force)
		if err != nil {
			return err
		}
		if change != job.Changed {
			r.reportUnchanged(change, old, j.Name)
			return nil
		}
		if old != nil {
			revision = old.Revision
			r.log.Info("job definition replaced", "job", j.Name, "by", r.identity, "was", old.Node)
		}
		next.Nonce = r.nonce()
		err = r.answered(ctx, "write job "+j.Name, func(ctx context.Context) error {
			_, err := jobs.Write(ctx, next, revision)
			return err
		})
		if !errors.Is(err, job.ErrConflict) {
			return err
		}
		var entry job.Entry
		err = r.answered(ctx, "read job "+j.Name, func(ctx context.Context) (err error) {
			entry, revision, err = jobs.Read(ctx, j.Name)
			return err
		})
		switch {
		case errors.Is(err, job.ErrNotFound):
			old = nil // deleted: the new entry goes over the marker at revision
		case err != nil:
			return err
		default:
			old = &entry
		}
	}
}

func (r *Replica) reportUnchanged(change job.Change, old *job.Entry, name string) {
	switch change {
	case job.Superseded:
		r.log.Warn("this definition was replaced by a later edit and is not brought back; to insist: cronce job apply, or SIGHUP to cronce run",
			"job", name, "held by", old.Node)
	case job.Held:
		r.log.Warn("an operator's edit stands over this definition", "job", name, "held by", old.Node, "end it", "cronce job release "+name)
	}
}
