package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/job"
)

// complainAfter is how long the registry may take to answer before it is said
// what is waited for.
const complainAfter = 10 * time.Second

// Apply brings jobs into the registry: what is equal is not written, what an edit
// superseded is not brought back (unless force says that a person asks for it),
// and a stored definition that this program cannot read is left alone. A replica
// that may not write the registry compares, and reports. From then on it reports
// when somebody else's definition takes the place of one of these. It may be
// called while Run runs, and waits for a broker that is away until ctx ends.
func (r *Replica) Apply(ctx context.Context, jobs []job.Job, force bool) error {
	known, err := r.standing(ctx, jobs)
	if err != nil {
		return err
	}
	a := applying{r, force, true}
	for i, j := range jobs {
		standing, revision, err := a.apply(ctx, known[i], j)
		if unreadable(err) {
			r.log.Error("the stored definition of this job cannot be read, and is left as it is", "job", j.Name, "error", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
		r.own.put(j, standing, revision)
		if e, ok := r.view.Entry(j.Name); ok { // the watch may have been faster
			r.compare(e)
		}
	}
	return nil
}

// readers is how many definitions are read at once.
const readers = 32

// standing is what the registry has of each of the jobs; nil: nothing that can be
// read. The registry may be a million jobs larger than what is ours, so it is asked
// by name.
func (r *Replica) standing(ctx context.Context, jobs []job.Job) ([]*job.Entry, error) {
	known := make([]*job.Entry, len(jobs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, j := range jobs {
		r.view.Keep(j.Name)
		group.Go(func() error {
			var entry job.Entry
			err := r.answered(ctx, "read job "+j.Name, func(ctx context.Context) (err error) {
				entry, _, err = r.cfg.Store.Jobs().Read(ctx, j.Name)
				return err
			})
			switch {
			case err == nil:
				known[i] = &entry
			case !errors.Is(err, job.ErrNotFound) && !unreadable(err):
				return err
			}
			return nil
		})
	}
	return known, group.Wait()
}

// applying is one Apply.
type applying struct {
	*Replica
	force bool

	// mayWrite is true until the server says that it is not so.
	mayWrite bool
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
		if !errors.Is(err, job.ErrUnknown) || errors.Is(err, job.ErrDenied) || ctx.Err() != nil {
			return err
		}
		r.log.Warn("still waiting for an answer", "to", what, "error", err)
	}
}

// apply writes one definition, and returns what then stands in the registry, as
// far as this replica knows. A conflict means that another replica wrote it meanwhile,
// most likely the same: it looks again.
func (a *applying) apply(ctx context.Context, old *job.Entry, j job.Job) (standing job.Job, revision uint64, _ error) {
	jobs := a.cfg.Store.Jobs()
	for {
		if old != nil {
			revision = old.Revision
		}
		next, change, err := job.Upsert(old, j, a.cfg.Owner, a.identity, a.force)
		if err != nil {
			return j, 0, err
		}
		if change != job.Changed || !a.mayWrite {
			a.report(change, old, j.Name)
			if old != nil {
				return old.Job, revision, nil
			}
			return j, revision, nil
		}
		next.Nonce = a.nonce()
		var won uint64
		err = a.answered(ctx, "write job "+j.Name, func(ctx context.Context) (err error) {
			won, err = jobs.Write(ctx, next, revision)
			return err
		})
		switch {
		case err == nil:
			a.replaced(old, j.Name)
			return j, won, nil
		case errors.Is(err, job.ErrDenied):
			a.log.Warn("this node may not write the job registry: it only compares its jobs with what is there", "error", err)
			a.mayWrite = false
			continue
		case !errors.Is(err, job.ErrConflict):
			return j, 0, err
		}
		var entry job.Entry
		err = a.answered(ctx, "read job "+j.Name, func(ctx context.Context) (err error) {
			entry, revision, err = jobs.Read(ctx, j.Name)
			return err
		})
		switch {
		case errors.Is(err, job.ErrNotFound):
			old = nil // deleted: the new entry goes over the marker at revision
		case err != nil:
			return j, 0, err
		default:
			old = &entry
		}
	}
}

// replaced says whose definition had to give way.
func (a *applying) replaced(old *job.Entry, name string) {
	if old != nil && old.Node != a.identity {
		a.log.Info("job definition replaced: this node's holds now", "job", name, "by", a.identity, "was", old.Node, "owner", old.Owner)
	}
}

// report says why a definition was not written.
func (a *applying) report(change job.Change, old *job.Entry, name string) {
	switch {
	case change == job.Superseded:
		a.log.Warn("this definition was replaced by a later edit and is not brought back; to insist: cronce job apply, or SIGHUP to cronce run",
			"job", name, "held by", old.Node)
	case change == job.Held:
		a.log.Warn("an operator's edit stands over this definition", "job", name, "held by", old.Node, "end it", "cronce job release "+name)
	case change == job.Changed && old == nil:
		a.log.Warn("this job is not in the registry, and this node may not bring it there: it has no slots until somebody does",
			"job", name, "bring it", "cronce job apply")
	case change == job.Changed:
		a.log.Warn("the registry's definition of this job differs from this node's, which may not write it: the registry's holds",
			"job", name, "this node", a.identity, "held by", old.Node, "owner", old.Owner)
	}
}
