package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/job"
)

const (
	// applyPatience is how long Apply waits for the next answer of the registry. With force, it must not
	// replace an edit that a person makes long after it was called, when the broker is back.
	applyPatience = 5 * time.Minute

	// mostNamed is how many jobs Apply logs by name.
	mostNamed = 10
)

// Apply writes jobs to the registry. It does not write a job whose stored definition is equal. It
// does not bring back a definition that an edit superseded, unless force is set because a person
// asks for it. It does not overwrite a stored definition that this program cannot read. If this
// login may not write the registry, Apply only logs the differences. After Apply the replica logs
// when another definition replaces one of these jobs. Apply may be called while Run runs.
//
// If the registry does not answer for applyPatience, Apply fails. If Apply fails, it logs which jobs it
// has written, and the replica keeps the jobs that it had, because the caller keeps their handlers. If the
// registry is created again, the replica applies these. Apply must not be called together with Add or Drop.
//
// Apply first reads the jobs, many in one request. Then it works in rounds. A round sends the
// writes that are needed, in order, without waiting for each answer. If a write meets a conflict,
// because another replica has written the job meanwhile, the job is read again at the leader and
// goes to the next round.
func (r *Replica) Apply(ctx context.Context, jobs []job.Job, force bool) error {
	own, before := r.own.replace(jobs)
	a := &applying{Replica: r, force: force}
	err := a.runWithPatience(ctx, own)
	if err != nil {
		r.own.restore(before)
		a.logPart()
	}
	return err
}

var errSilent = errors.New("the registry does not answer")

// runWithPatience is run that ends if the registry does not answer for the replica's patience.
func (a *applying) runWithPatience(ctx context.Context, jobs []ownJob) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	silence := time.AfterFunc(a.patience, func() { giveUp(errSilent) })
	defer silence.Stop()
	a.answered = func() { silence.Reset(a.patience) }
	err := a.run(ctx, jobs)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return fmt.Errorf("%w: no answer for %v: %w", errSilent, a.patience, err)
	}
	return err
}

// logPart logs which jobs were written, or may have been, by a call of Apply that failed.
func (a *applying) logPart() {
	if len(a.written)+len(a.unknown) == 0 {
		return
	}
	first := func(names []string) []string { return names[:min(len(names), mostNamed)] }
	a.log.Error("only a part of the jobs was applied: the registry has their new definitions, and this node keeps its previous jobs",
		"jobs", a.all, "written", len(a.written), "written_jobs", first(a.written), "unknown", len(a.unknown), "unknown_jobs", first(a.unknown),
		"fix", "correct the file, or put the previous one back, and send SIGHUP again")
}

func (a *applying) noteAnswer() {
	if a.answered != nil {
		a.answered()
	}
}
