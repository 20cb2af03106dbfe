package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

const (
	// complainAfter is how long the registry may take to answer before "still
	// waiting" is logged.
	complainAfter = 10 * time.Second

	// progressEvery is how often Apply logs how far it is.
	progressEvery = 3 * time.Second

	// readers is how many definitions are read at once at the registry's leader.
	readers = 32

	// maxUnanswered bounds the writes that are unanswered. It is twice writesAtOnce: while
	// the broker stores some, others are on their way.
	maxUnanswered = 2 * writesAtOnce

	// writesAtOnce is how many writes are sent together, for the broker to sync once.
	writesAtOnce = 500
)

// Apply brings jobs into the registry: what is equal is not written, what an edit
// superseded is not brought back (unless force says that a person asks for it),
// and a stored definition that this program cannot read is left alone. A replica
// that may not write the registry compares, and reports. From then on it reports
// when somebody else's definition takes the place of one of these. It may be
// called while Run runs, and waits for a broker that is away until ctx ends.
//
// It works in rounds. A round reads many jobs in one request, sends the writes that
// are needed in their order without waiting for each answer, and leaves to the next
// round the jobs whose write met a conflict: another replica wrote them meanwhile,
// most likely the same.
func (r *Replica) Apply(ctx context.Context, jobs []job.Job, force bool) error {
	r.mu.Lock()
	r.jobs = jobs
	r.mu.Unlock()
	a := &applying{Replica: r, force: force, mayWrite: true, all: len(jobs)}
	defer a.reportProgress()()
	left := make([]attempt, len(jobs))
	for i, j := range jobs {
		r.view.Keep(j.Name)
		left[i].mine = j
	}
	err := a.readMany(ctx, left)
	for err == nil && len(left) > 0 {
		left, err = a.round(ctx, left)
		if err == nil {
			left, err = a.readLeader(ctx, left)
		}
	}
	return err
}

// applying is one Apply.
type applying struct {
	*Replica
	force bool

	// mayWrite is true until the server says that it is not so.
	mayWrite bool

	all  int
	done atomic.Int64
}

// attempt is a job to be brought in, and what the registry was last seen to have of it.
type attempt struct {
	mine     job.Job
	old      *core.Entry // nil: nothing that can be read
	revision uint64      // the last one of the job
}

// reportProgress logs now and then how far it is, until the returned function is
// called.
func (a *applying) reportProgress() (stop func()) {
	over := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		every := time.NewTicker(progressEvery)
		defer every.Stop()
		for {
			select {
			case <-over:
				return
			case <-every.C:
				a.log.Info("bringing jobs into the registry", "done", a.done.Load(), "jobs", a.all)
			}
		}
	})
	return func() { close(over); ended.Wait() }
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

// readMany fills in what any replica of the registry has of the jobs: a hint, since a
// write that goes by an old one meets a conflict. The registry may be a million jobs
// larger than what is ours, so it is asked by name.
func (a *applying) readMany(ctx context.Context, jobs []attempt) error {
	names := make([]string, len(jobs))
	for i := range jobs {
		names[i] = jobs[i].mine.Name
	}
	return a.answered(ctx, "read the jobs", func(ctx context.Context) error {
		known, err := a.cfg.Store.Jobs().Latest(ctx, names)
		for i := range jobs {
			if entry, ok := known[names[i]]; ok {
				jobs[i].old, jobs[i].revision = &entry, entry.Revision
			}
		}
		return err
	})
}

// readLeader fills in what the registry's leader has of the jobs, and leaves out those
// of which it has something that cannot be read.
func (a *applying) readLeader(ctx context.Context, jobs []attempt) (readable []attempt, _ error) {
	broken := make([]bool, len(jobs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i := range jobs {
		group.Go(func() error {
			t := &jobs[i]
			err := a.answered(ctx, "read job "+t.mine.Name, func(ctx context.Context) error {
				entry, revision, err := a.cfg.Store.Jobs().Read(ctx, t.mine.Name)
				t.old, t.revision = &entry, revision
				return err
			})
			switch {
			case errors.Is(err, job.ErrNotFound):
				t.old = nil // deleted: the new entry goes over the marker at its revision
			case core.IsUnreadable(err):
				broken[i] = true
				a.log.Error("the stored definition of this job cannot be read, and is left as it is", "job", t.mine.Name, "error", err)
			case err != nil:
				return fmt.Errorf("job %s: %w", t.mine.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i := range jobs {
		if !broken[i] {
			readable = append(readable, jobs[i])
		}
	}
	return readable, nil
}

// write is a definition that is to be stored for an attempt.
type write struct {
	attempt
	next core.Definition
}

// send sends the writes; each puts its answer into outcomes.
func (a *applying) send(ctx context.Context, writes []write, outcomes chan<- outcome) {
	all := make([]kv.JobWrite, len(writes))
	for i, w := range writes {
		all[i] = kv.JobWrite{Definition: w.next, Revision: w.revision}
	}
	a.cfg.Store.Jobs().SendAll(ctx, all, func(i int, won uint64, err error) {
		outcomes <- outcome{writes[i].attempt, won, err}
	})
}

// outcome is the answer to the write of one attempt.
type outcome struct {
	attempt
	won uint64
	err error
}

// round writes the jobs that differ from what was read, and returns those whose write
// met a conflict. Until one write has succeeded it waits for each answer: a server that
// permits none names only one of many in its complaint.
func (a *applying) round(ctx context.Context, jobs []attempt) (conflicts []attempt, failed error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	outcomes, open, most := make(chan outcome, maxUnanswered), 0, 1
	var ready []write
	send := func() {
		open += len(ready)
		a.send(ctx, ready, outcomes)
		ready = nil
	}
	settle := func() {
		o := <-outcomes
		open--
		if err := a.settle(o); errors.Is(err, job.ErrConflict) {
			conflicts = append(conflicts, o.attempt)
		} else if err != nil && failed == nil {
			failed = fmt.Errorf("job %s: %w", o.mine.Name, err)
			stop()
		} else if o.err == nil {
			most = maxUnanswered
		}
	}
	for _, t := range jobs {
		for len(outcomes) > 0 || open+len(ready) >= most {
			settle()
		}
		if failed != nil || ctx.Err() != nil {
			break
		}
		next, change, err := core.Upsert(t.old, t.mine, a.cfg.Owner, a.identity, a.force)
		if err != nil {
			failed = fmt.Errorf("job %s: %w", t.mine.Name, err)
			break
		}
		if change != core.Changed || !a.mayWrite {
			a.leave(t, change)
			continue
		}
		next.Nonce = a.nonce()
		ready = append(ready, write{t, next})
		if len(ready) == min(most, writesAtOnce) {
			send()
		}
	}
	if failed == nil && ctx.Err() == nil {
		send()
	}
	for open > 0 {
		settle()
	}
	if failed == nil {
		failed = ctx.Err()
	}
	return conflicts, failed
}

// settle takes in the answer to a write.
func (a *applying) settle(o outcome) error {
	switch {
	case o.err == nil:
		a.replaced(o.old, o.mine.Name)
		a.keep(o.mine, o.mine, o.won)
		return nil
	case errors.Is(o.err, job.ErrDenied):
		if a.mayWrite {
			a.mayWrite = false
			a.log.Warn("this node may not write the job registry: it only compares its jobs with what is there", "error", o.err)
		}
		a.leave(o.attempt, core.Changed)
		return nil
	}
	return o.err
}

// leave reports why a job is not written, and keeps what stands there.
func (a *applying) leave(t attempt, change core.Change) {
	a.report(change, t.old, t.mine.Name)
	standing := t.mine
	if t.old != nil {
		standing = t.old.Job
	}
	a.keep(t.mine, standing, t.revision)
}

// keep notes what stands in the registry beside a job of this replica.
func (a *applying) keep(mine, standing job.Job, revision uint64) {
	a.done.Add(1)
	a.own.put(mine, standing, revision)
	if e, ok := a.view.Entry(mine.Name); ok { // the watch may have been faster
		a.compare(e)
	}
}

// replaced says whose definition had to give way.
func (a *applying) replaced(old *core.Entry, name string) {
	if old != nil && old.Node != a.identity {
		a.log.Info("job definition replaced: this node's holds now", "job", name, "by", a.identity, "was", old.Node, "owner", old.Owner)
	}
}

// report says why a definition was not written.
func (a *applying) report(change core.Change, old *core.Entry, name string) {
	switch {
	case change == core.Superseded:
		a.log.Warn("this definition was replaced by a later edit and is not brought back; to insist: cronce job apply, or SIGHUP to cronce run",
			"job", name, "held by", old.Node)
	case change == core.Held:
		a.log.Warn("an operator's edit stands over this definition", "job", name, "held by", old.Node, "end it", "cronce job release "+name)
	case change == core.Changed && old == nil:
		a.log.Warn("this job is not in the registry, and this node may not bring it there: it has no slots until somebody does",
			"job", name, "bring it", "cronce job apply")
	case change == core.Changed:
		a.log.Warn("the registry's definition of this job differs from this node's, which may not write it: the registry's holds",
			"job", name, "this node", a.identity, "held by", old.Node, "owner", old.Owner)
	}
}
