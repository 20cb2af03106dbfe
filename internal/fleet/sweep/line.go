package sweep

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Lines are the lines of the jobs. stream.Lines satisfies it.
type Lines interface {
	Read(ctx context.Context, name string, from uint64) ([]core.Entry, error)
	Purge(ctx context.Context, name string, before uint64) error
	Counts(ctx context.Context) (map[string]uint64, error)
}

// maxWindows bounds how often a pass reads on in one line, over entries that do not count any more.
const maxWindows = 20

// tendLines looks at the lines of the jobs. A slot that has to end while it stands in a line, because it
// is too old, gets a message. If a job has had a free place for a while, its first slot gets one: the
// worker calls the line then. tendLines also removes the entries that do not count any more. It looks at
// each line that has entries, even if the lock says that no slot waits: the worker that wrote this may
// have died before it looked at the line again.
func (s *Sweeper) tendLines(ctx context.Context) error {
	counts, err := s.cfg.Lines.Counts(ctx)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for name := range counts {
		l := s.locks[name]
		l.Job = name
		group.Go(func() error { return s.skipIfBad(groupCtx, job.Slot{Job: name}, s.tendLine(groupCtx, l)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return s.purgeLines(ctx, counts)
}

func (s *Sweeper) tendLine(ctx context.Context, l kv.LockChange) error {
	places := 1
	switch entry, _, err := s.cfg.Registry.Read(ctx, l.Job); {
	case err == nil:
		places = entry.Job.Places()
	case !errors.Is(err, job.ErrNotFound) && !exchange.IsUnreadable(err):
		return err
	}
	idle := len(l.Holders) < places && s.age(l.Time) > stallAfter
	s.mu.Lock()
	from := max(l.Line, s.linesAt[l.Job])
	s.mu.Unlock()
	for range maxWindows {
		entries, err := s.cfg.Lines.Read(ctx, l.Job, from)
		if err != nil || len(entries) == 0 {
			return err
		}
		for _, e := range entries {
			stays, err := s.tendEntry(ctx, e, &idle)
			if err != nil || stays {
				return err
			}
			from = e.Sequence + 1
		}
		s.mu.Lock()
		s.linesAt[l.Job] = from
		s.mu.Unlock()
	}
	return nil
}

// tendEntry publishes a message for the slot of an entry, if it has to end, or if idle is true. It then sets
// idle to false. It returns true if the slot waits rightly.
func (s *Sweeper) tendEntry(ctx context.Context, e core.Entry, idle *bool) (stays bool, err error) {
	if e.Slot.Job == "" {
		return false, nil
	}
	rec, revision, err := s.cfg.Ledger.Read(ctx, e.Slot)
	switch {
	case errors.Is(err, job.ErrNotFound), exchange.IsUnreadable(err):
		return false, nil
	case err != nil:
		return false, err
	case rec.State != job.Waiting:
		return false, nil
	}
	over := (core.Lock{}).IsOver(e, rec, job.OverlapQueue, core.View{Now: s.cfg.Now(), Horizon: s.cfg.Horizon})
	if !over && !*idle {
		return true, nil
	}
	*idle = *idle && over
	return !over, s.call(ctx, rec, revision)
}

// purgeLines removes the entries before Lock.Line.
func (s *Sweeper) purgeLines(ctx context.Context, counts map[string]uint64) error {
	for name := range counts {
		l := s.locks[name]
		if l.Line <= s.purged[name] {
			continue
		}
		if err := s.cfg.Lines.Purge(ctx, name, l.Line); err != nil {
			return err
		}
		s.purged[name] = l.Line
	}
	return nil
}
