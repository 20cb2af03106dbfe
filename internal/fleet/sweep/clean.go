package sweep

import (
	"context"
	"errors"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Leftovers are the keys of the state bucket that name a job or a node. kv.Leftovers satisfies it.
type Leftovers interface {
	// Names returns the jobs or nodes that have a key of the kind. Jobs returns the jobs in the registry, and those
	// that were removed in the last day.
	Names(ctx context.Context, kind string) ([]string, error)
	Jobs(ctx context.Context) ([]string, error)
	Node(ctx context.Context, name string) (exchange.NodeEvent, error)
	Lock(ctx context.Context, name string) (core.Lock, uint64, error)
	Revision(ctx context.Context, kind, name string) (uint64, error)
	Remove(ctx context.Context, kind, name string, revision uint64) error
}

const (
	// cleanEvery is how often the sweep removes what jobs and nodes that are gone have left in the state bucket. It
	// lists the names of all jobs for that.
	cleanEvery = time.Hour

	// maxCleaned bounds the keys that it looks at each time.
	maxCleaned = 1000
)

// clean removes the locks and alert states of jobs that are gone for a day, and the lists of handlers of dead nodes.
// Each removal names the revision that was read, so a key that is written meanwhile stays.
func (s *Sweeper) clean(ctx context.Context, nodes []exchange.NodeEvent) error {
	now := s.cfg.Now()
	if s.cleanedAt.IsZero() { // a fleet that has just started has other work
		s.cleanedAt = now
	}
	if now.Sub(s.cleanedAt).Abs() < cleanEvery {
		return nil
	}
	s.cleanedAt = now
	alive := map[string]bool{}
	for _, n := range nodes {
		alive[n.Name] = n.Err != nil || n.Node.State == exchange.NodeAlive
	}
	if err := s.cleanKind(ctx, kv.LeftHandlers, alive, s.isNodeDead); err != nil {
		return err
	}
	names, err := s.cfg.Leftovers.Jobs(ctx)
	if err != nil {
		return err
	}
	jobs := map[string]bool{}
	for _, name := range names {
		jobs[name] = true
	}
	if err := s.cleanKind(ctx, kv.LeftAlert, jobs, s.isJobGone); err != nil {
		return err
	}
	return s.cleanKind(ctx, kv.LeftLock, jobs, func(ctx context.Context, name string) (bool, error) {
		gone, err := s.isJobGone(ctx, name)
		if err != nil || !gone {
			return false, err
		}
		lock, _, err := s.cfg.Leftovers.Lock(ctx, name)
		if err != nil {
			return false, err
		}
		return s.hasEnded(ctx, lock)
	})
}

// cleanKind removes the keys of a kind whose names are not in use, if gone confirms that.
func (s *Sweeper) cleanKind(ctx context.Context, kind string, inUse map[string]bool, gone func(context.Context, string) (bool, error)) error {
	names, err := s.cfg.Leftovers.Names(ctx, kind)
	if err != nil {
		return err
	}
	looked := 0
	for _, name := range names {
		if inUse[name] {
			continue
		}
		if looked++; looked > maxCleaned {
			return nil
		}
		if err := s.cleanKey(ctx, kind, name, gone); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sweeper) cleanKey(ctx context.Context, kind, name string, gone func(context.Context, string) (bool, error)) error {
	// The revision is read first: a key that is written after that is not removed.
	revision, err := s.cfg.Leftovers.Revision(ctx, kind, name)
	if err == nil {
		var is bool
		if is, err = gone(ctx, name); err == nil && is {
			err = s.cfg.Leftovers.Remove(ctx, kind, name, revision)
		}
	}
	switch {
	case errors.Is(err, job.ErrNotFound), errors.Is(err, job.ErrConflict), errors.Is(err, job.ErrInvalid), exchange.IsUnreadable(err):
		return nil // it was removed or written meanwhile, or is no key of this program
	case errors.Is(err, job.ErrDenied):
		s.cfg.Logger.Debug("cannot remove what a job or a node has left", "error", err)
		return nil
	}
	return err
}

// isNodeDead reports whether the node has no record, or one that says that it is dead. A node writes its list only
// while it is alive.
func (s *Sweeper) isNodeDead(ctx context.Context, name string) (bool, error) {
	e, err := s.cfg.Leftovers.Node(ctx, name)
	if errors.Is(err, job.ErrNotFound) {
		return true, nil
	}
	return err == nil && e.Node.State != exchange.NodeAlive, err
}

// isJobGone reports whether the registry has neither the job nor the marker of its removal, which stays for a day.
func (s *Sweeper) isJobGone(ctx context.Context, name string) (bool, error) {
	_, revision, err := s.cfg.Registry.Read(ctx, name)
	if errors.Is(err, job.ErrNotFound) {
		return revision == 0, nil
	}
	return false, err
}

// hasEnded reports whether all slots in the lock have ended.
func (s *Sweeper) hasEnded(ctx context.Context, lock core.Lock) (bool, error) {
	for _, slots := range [][]core.LockSlot{lock.Holders, lock.Waiting} {
		for _, in := range slots {
			r, _, err := s.cfg.Ledger.Read(ctx, in.Slot)
			switch {
			case errors.Is(err, job.ErrNotFound):
			case err != nil:
				return false, err
			case !r.State.Final():
				return false, nil
			}
		}
	}
	return true, nil
}
