package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

const (
	// answerTimeout is how long the registry may take to answer before "still waiting" is
	// logged and the request is repeated. A repeated request may take twice as long.
	answerTimeout = 10 * time.Second

	// progressEvery is how often Apply logs its progress.
	progressEvery = 3 * time.Second

	// readsAtOnce is how many definitions are read at once at the registry's leader.
	readsAtOnce = 32

	// maxUnanswered bounds the writes without an answer. It is twice writesAtOnce: while the
	// broker stores some, others are in flight.
	maxUnanswered = 2 * writesAtOnce

	// writesAtOnce is how many writes are sent together, so that the broker syncs them together.
	writesAtOnce = 500
)

func (a *applying) run(ctx context.Context, jobs []ownJob) error {
	a.mayWrite, a.all = true, len(jobs)
	defer a.reportProgress()()
	left := make([]pendingJob, len(jobs))
	for i, j := range jobs {
		a.view.Keep(j.Name)
		left[i].ours = j
	}
	read := a.readMany
	if slices.ContainsFunc(jobs, func(j ownJob) bool { return len(j.replaces) > 0 }) {
		read = func(ctx context.Context, jobs []pendingJob) (err error) {
			left, err = a.readLeader(ctx, jobs)
			return err
		}
	}
	err := read(ctx, left)
	for err == nil && len(left) > 0 {
		a.noteAnswer()
		left, err = a.round(ctx, left)
		if err == nil {
			left, err = a.readLeader(ctx, left)
		}
	}
	return err
}

// applying is one call of Apply.
type applying struct {
	*Replica
	force bool

	// mayWrite is true until the server denies a write.
	mayWrite bool

	all  int
	done atomic.Int64

	// answered, if set, is called when the registry has answered. written are the jobs that the registry
	// has stored, and unknown those whose writes got no answer.
	answered         func()
	written, unknown []string
}

// pendingJob is a job to be applied, and its entry in the registry as it was last read.
type pendingJob struct {
	ours       ownJob
	old        *plans.Entry // nil if there is none
	revision   uint64       // the last revision of the job's key
	unreadable bool         // the registry has an entry that cannot be decoded
}

// reportProgress logs the progress every progressEvery, until stop is called.
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
				a.log.Info("applying jobs to the registry", "done", a.done.Load(), "jobs", a.all)
			}
		}
	})
	return func() { close(over); ended.Wait() }
}

// untilAnswered repeats ask until the broker answers. After each try without an answer it logs what
// it waits for. Each try may take twice as long as the one before: over a slow link, one answer may
// take longer than answerTimeout.
func (r *Replica) untilAnswered(ctx context.Context, what string, ask func(context.Context) error) error {
	for limit := answerTimeout; ; limit *= 2 {
		attempt, cancel := context.WithTimeout(ctx, limit)
		err := ask(attempt)
		cancel()
		if !errors.Is(err, job.ErrUnknown) || errors.Is(err, job.ErrDenied) || ctx.Err() != nil {
			return err
		}
		r.log.Warn("still waiting for an answer", "to", what, "error", err)
	}
}

// readMany reads the entries of the jobs from any replica of the registry's bucket. They may be
// stale: a write at an old revision meets a conflict. readMany asks by name, because the registry
// may have a million jobs of other processes.
func (a *applying) readMany(ctx context.Context, jobs []pendingJob) error {
	names := codec.Map(jobs, func(j pendingJob) string { return j.ours.Name })
	return a.untilAnswered(ctx, "read the jobs", func(ctx context.Context) error {
		known, err := a.cfg.Store.Jobs().Latest(ctx, names)
		for i := range jobs {
			if entry, ok := known[names[i]]; ok {
				jobs[i].old, jobs[i].revision = &entry, entry.Revision
			}
		}
		return err
	})
}

// readLeader reads the entries of the jobs at the registry's leader. It leaves out the jobs whose
// stored definition cannot be decoded.
func (a *applying) readLeader(ctx context.Context, jobs []pendingJob) (readable []pendingJob, _ error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsAtOnce)
	for i := range jobs {
		group.Go(func() error {
			t := &jobs[i]
			err := a.untilAnswered(ctx, "read job "+t.ours.Name, func(ctx context.Context) error {
				entry, revision, err := a.cfg.Store.Jobs().Read(ctx, t.ours.Name)
				t.old, t.revision = &entry, revision
				return err
			})
			switch {
			case errors.Is(err, job.ErrNotFound):
				t.old = nil // deleted: the new entry replaces the deletion marker at its revision
			case exchange.IsUnreadable(err):
				t.unreadable = true
				a.own.noteApplied(t.ours, t.ours.Job, t.revision)
				a.log.Error("the stored definition of this job cannot be read, and is left as it is", "job", t.ours.Name, "error", err)
			case err != nil:
				return fmt.Errorf("job %s: %w", t.ours.Name, err)
			}
			return nil
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(jobs, func(t pendingJob) bool { return t.unreadable }), err
}

// write is a definition that is to be stored for a pending job.
type write struct {
	pendingJob
	next plans.Definition
}

// send sends the writes. The answer to each goes to answers.
func (a *applying) send(ctx context.Context, writes []write, answers chan<- answer) {
	all := codec.Map(writes, func(w write) kv.JobWrite { return kv.JobWrite{Definition: w.next, Revision: w.revision} })
	a.cfg.Store.Jobs().SendAll(ctx, all, func(i int, won uint64, err error) {
		answers <- answer{writes[i].pendingJob, won, err}
	})
}

// answer is the broker's answer to the write for one job. won is the revision of the entry if it was
// stored.
type answer struct {
	pendingJob
	won uint64
	err error
}

// round writes the jobs whose definitions differ from the entries that were read, and returns those
// whose write met a conflict. Until one write has succeeded, it waits for each answer before it sends
// the next write: if the login may not write, the server's error names only one of many writes.
func (a *applying) round(ctx context.Context, jobs []pendingJob) (conflicts []pendingJob, failed error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	answers, open, most := make(chan answer, maxUnanswered), 0, 1
	var ready []write
	send := func() {
		open += len(ready)
		a.send(ctx, ready, answers)
		ready = nil
	}
	settle := func() {
		o := <-answers
		open--
		if err := a.handleAnswer(o); errors.Is(err, job.ErrConflict) {
			conflicts = append(conflicts, o.pendingJob)
		} else if err != nil && failed == nil {
			failed = fmt.Errorf("job %s: %w", o.ours.Name, err)
			stop()
		} else if o.err == nil {
			most = maxUnanswered
		}
	}
	for _, t := range jobs {
		for len(answers) > 0 || open+len(ready) >= most {
			settle()
		}
		if failed != nil || ctx.Err() != nil {
			break
		}
		next, change, err := plans.Upsert(t.old, t.ours.Job, a.cfg.Owner, a.identity, a.force || t.isEdit())
		if err != nil {
			failed = fmt.Errorf("job %s: %w", t.ours.Name, err)
			break
		}
		if change != plans.Changed || !a.mayWrite {
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

// isEdit reports whether the entry has one of the definitions that the job replaces.
func (t pendingJob) isEdit() bool {
	return t.old != nil && len(t.ours.replaces) > 0 && slices.Contains(t.ours.replaces, hashOf(t.old.Job))
}

func (a *applying) handleAnswer(o answer) error {
	switch {
	case o.err == nil:
		a.noteAnswer()
		a.written = append(a.written, o.ours.Name)
		a.logReplacing(o.old, o.ours.Name)
		a.note(o.ours, o.ours.Job, o.won)
		return nil
	case errors.Is(o.err, job.ErrDenied):
		if a.mayWrite {
			a.mayWrite = false
			a.log.Warn("this node may not write the job registry: it only compares its jobs with those stored", "error", o.err)
		}
		a.leave(o.pendingJob, plans.Changed)
		return nil
	case errors.Is(o.err, job.ErrUnknown):
		a.unknown = append(a.unknown, o.ours.Name)
	}
	return o.err
}

// leave logs why a job is not written, and notes the definition that the registry has.
func (a *applying) leave(t pendingJob, change plans.Change) {
	a.logUnwritten(change, t.old, t.ours.Name)
	stored := t.ours.Job
	if t.old != nil {
		stored = t.old.Job
	}
	a.note(t.ours, stored, t.revision)
}

// note records that ours was applied. stored is the definition that the registry has since then, and
// revision its revision.
func (a *applying) note(ours ownJob, stored job.Job, revision uint64) {
	a.done.Add(1)
	a.own.noteApplied(ours, stored, revision)
	if e, ok := a.view.Entry(ours.Name); ok { // the watch may have been faster
		a.logReplaced(e)
	}
}

// logReplacing logs that this node's definition has replaced that of another node.
func (a *applying) logReplacing(old *plans.Entry, name string) {
	if old != nil && old.Node != a.identity {
		a.log.Info("job definition replaced: this node's definition counts now", "job", name, "node", a.identity, "stored_by", old.Node, "owner", old.Owner)
	}
}

// logUnwritten logs why a definition was not written.
func (a *applying) logUnwritten(change plans.Change, old *plans.Entry, name string) {
	switch {
	case change == plans.Superseded:
		a.log.Warn("this definition was replaced by a later edit and is not brought back",
			"job", name, "stored_by", old.Node, "fix", "to apply it anyway: cronce job apply -f FILE, or SIGHUP to cronce run")
	case change == plans.Held:
		a.log.Warn("an operator's edit takes precedence over this definition", "job", name, "stored_by", old.Node, "release", "cronce job release "+name)
	case change == plans.Changed && old == nil:
		a.log.Warn("this job is not in the registry, and this node may not write it there: it has no slots until another login applies it",
			"job", name, "fix", "cronce job apply")
	case change == plans.Changed:
		a.log.Warn("the registry's definition of this job differs from this node's, and this node may not write it: the registry's definition counts",
			"job", name, "node", a.identity, "stored_by", old.Node, "owner", old.Owner)
	}
}
