package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/job"
)

// applyFor is how long a start tries to write one definition.
const applyFor = 30 * time.Second

// Apply brings jobs into the registry: what is equal is not written, what an edit
// superseded is not brought back (unless force says that a person asks for it).
// It may be called while Run runs.
func (r *Replica) Apply(ctx context.Context, jobs []job.Job, force bool) error {
	entries, err := r.cfg.Store.Jobs().List(ctx)
	if err != nil && entries == nil {
		return fmt.Errorf("read the job registry: %w", err)
	}
	known := map[string]*job.Entry{}
	for i := range entries {
		known[entries[i].Job.Name] = &entries[i]
	}
	for _, j := range jobs {
		if err := r.apply(ctx, known[j.Name], j, force); err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	return nil
}

// apply writes one definition. A conflict means that another replica wrote it
// meanwhile, most likely the same: it looks again.
func (r *Replica) apply(ctx context.Context, old *job.Entry, j job.Job, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, applyFor)
	defer cancel()
	for {
		next, change, err := job.Upsert(old, j, r.cfg.Owner, r.identity, force)
		if err != nil {
			return err
		}
		if change != job.Changed {
			r.reportUnchanged(change, old, j.Name)
			return nil
		}
		revision := uint64(0)
		if old != nil {
			revision = old.Revision
			r.log.Info("job definition replaced", "job", j.Name, "by", r.identity, "was", old.Node)
		}
		next.Nonce = r.nonce()
		_, err = r.cfg.Store.Jobs().Write(ctx, next, revision)
		if !errors.Is(err, job.ErrConflict) {
			return err
		}
		entry, at, err := r.cfg.Store.Jobs().Read(ctx, j.Name)
		switch {
		case errors.Is(err, job.ErrNotFound):
			// Deleted, and a marker stands there: the new entry goes over it.
			old = nil
			if at == 0 {
				continue
			}
			next, _, _ = job.Upsert(nil, j, r.cfg.Owner, r.identity, force)
			next.Nonce = r.nonce()
			if _, err = r.cfg.Store.Jobs().Write(ctx, next, at); !errors.Is(err, job.ErrConflict) {
				return err
			}
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
		r.log.Warn("this definition was replaced by a later edit and is not brought back; to insist, edit it or send SIGHUP to cronce run",
			"job", name, "held by", old.Node)
	case job.Held:
		r.log.Warn("an operator's edit stands over this definition", "job", name, "held by", old.Node)
	}
}
