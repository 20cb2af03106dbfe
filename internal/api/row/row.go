// Package row holds the JSON of the results of orders, which the command line prints with -o json
// and the HTTP API returns. The rows of listings are in package client; page.go has their pages.
package row

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Next is one of the coming slots of a job.
type Next struct {
	Job   string    `json:"job,omitempty"`
	Slot  time.Time `json:"slot"`
	Local time.Time `json:"local" doc:"in the job's time zone"`
}

// Coming yields the rows of at most count coming slots of a job, strictly after a time and before
// until. If after is zero, it is now. If until is zero, there is no bound.
func Coming(of client.Upcoming, after, until time.Time, count int) iter.Seq[Next] {
	if after.IsZero() {
		after = of.Now
	}
	return func(yield func(Next) bool) {
		for at := range of.Slots(after, until, count) {
			if !yield(Next{Slot: at.UTC(), Local: at.In(of.Location())}) {
				return
			}
		}
	}
}

// Pause is a job after pause or resume.
type Pause struct {
	Job      string            `json:"job"`
	Paused   bool              `json:"paused"`
	Revision uint64            `json:"revision"`
	Changed  bool              `json:"changed" doc:"false: nothing had to be changed"`
	Since    time.Time         `json:"since,omitzero" doc:"when the pause began"`
	Missed   *int              `json:"missed,omitempty" doc:"slots that fell due during the pause"`
	Policy   job.CatchUpPolicy `json:"policy,omitempty" doc:"the job's catch-up policy"`
	Runs     *int              `json:"runs,omitempty" doc:"how many of the missed slots the policy runs"`
	DryRun   bool              `json:"dry_run,omitempty"`
}

// Paused is the row of a job that was paused.
func Paused(e client.Edited) Pause {
	return Pause{Job: e.Job.Name, Paused: true, Revision: e.Revision, Changed: e.Changed}
}

// WouldResume is the row of what Resume would do.
func WouldResume(r client.Resumption) Pause {
	p := Pause{Job: r.Job.Name, Paused: r.Paused, Revision: r.Revision, DryRun: true}
	if r.Paused {
		p.Since, p.Missed, p.Runs = r.Since.UTC(), &r.Missed, &r.Runs
		p.Policy = r.Job.WithDefaults().CatchUp.Policy
	}
	return p
}

// Resumed returns the row of a job whose pause was ended. p is the row of WouldResume from before.
func (p Pause) Resumed(done client.Resumption) Pause {
	p.Paused, p.Revision, p.Changed, p.DryRun = false, done.Revision, done.Changed, false
	return p
}

// Release is a job after release.
type Release struct {
	Job      string `json:"job"`
	Revision uint64 `json:"revision"`
	Owner    string `json:"owner" doc:"which writers may change the job: file, code, operator, or released (any)"`
	Changed  bool   `json:"changed" doc:"false: nothing had to be changed"`
}

// Released is the row of a job that was released.
func Released(e client.Edited) Release { return Release{e.Job.Name, e.Revision, e.Owner, e.Changed} }

// Remove is a job that was removed.
type Remove struct {
	Job     string `json:"job"`
	Removed bool   `json:"removed"`
}

// Trigger is a run that was ordered.
type Trigger struct {
	ID        string    `json:"id"`
	Job       string    `json:"job"`
	Key       string    `json:"key"`
	State     job.State `json:"state" doc:"pending while the run waits"`
	New       bool      `json:"new" doc:"false: an earlier order with the key created the run"`
	Queue     string    `json:"queue"`
	Due       time.Time `json:"due,omitzero"`
	MovedFrom string    `json:"moved_from,omitempty" doc:"the queue that the run waited in before"`
}

// Triggered is the row of a run.
func Triggered(r client.Run) Trigger {
	return Trigger{r.Slot.ID(), r.Slot.Job, r.Slot.Token, r.State, r.New, r.Queue, r.Due.UTC(), r.MovedFrom}
}

// Backfill counts the slots of a range.
type Backfill struct {
	Job string `json:"job"`
	client.Backfilled
}

// Rate returns the rate of a request for a backfill, in messages per second. rate is nil if the request
// has none: 0 is not a request without a rate.
func Rate(rate *int) (int, error) {
	switch {
	case rate == nil:
		return client.DefaultRate, nil
	case *rate == 0:
		return 0, fmt.Errorf("%w rate 0/s: want 1/s to %d/s", job.ErrInvalid, client.MaxRate)
	}
	return *rate, nil
}

// Retry is a slot with a new start.
type Retry struct {
	ID      string    `json:"id"`
	State   job.State `json:"state"`
	Attempt int       `json:"attempt" doc:"the attempts so far"`
	Left    int       `json:"attempts_left"`
}

// Retried is the row of a slot that was retried.
func Retried(r client.Retried) Retry { return Retry{r.ID, r.State, r.Attempt, r.Left} }

// Cancel is a slot that was cancelled.
type Cancel struct {
	ID    string    `json:"id"`
	State job.State `json:"state"`
	Error string    `json:"error"`
}

// Cancelled is the row of a slot that ended.
func Cancelled(s client.SlotDetails) Cancel { return Cancel{s.ID, s.State, s.Error} }

// Apply is what became of one job of a file.
type Apply struct {
	Job       string         `json:"job"`
	Change    string         `json:"change" enum:"created,updated,removed,unchanged,failed,not_tried"`
	Revision  uint64         `json:"revision,omitempty"`
	Was       *Written       `json:"was,omitempty" doc:"the last write before"`
	Broken    string         `json:"broken,omitempty" doc:"why the definition that was replaced could not be read"`
	Fields    []client.Field `json:"fields,omitempty" doc:"the settings that change"`
	Appear    []time.Time    `json:"appear,omitempty" doc:"the next slots that the change adds"`
	Disappear []time.Time    `json:"disappear,omitempty" doc:"the next slots that the change removes"`
	Paused    bool           `json:"paused,omitempty" doc:"the slots come and go when the job is resumed"`
	Handlers  *int           `json:"handlers,omitempty" doc:"live nodes that would run the job"`
	DryRun    bool           `json:"dry_run,omitempty"`
	Error     string         `json:"error,omitempty"`
}

// Written describes a write of a job.
type Written struct {
	Owner string    `json:"owner"`
	Node  string    `json:"node" doc:"the node or operator that wrote"`
	At    time.Time `json:"at"`
}

// The values of Apply.Change for a job that was not written.
const (
	Failed   = "failed"
	NotTried = "not_tried"
)

var changes = map[client.Action]string{
	client.Create: "created", client.Update: "updated", client.Delete: "removed", client.Keep: "unchanged",
}

// Applied is the row of a job.
func Applied(d client.Applied, dryRun bool) Apply {
	a := Apply{
		Job: d.Job, Change: changes[d.Action], Revision: d.Revision, Fields: d.Fields,
		Appear: d.Appear, Disappear: d.Disappear, Paused: d.Paused, DryRun: dryRun,
	}
	if !d.At.IsZero() {
		a.Was = &Written{d.Owner, d.Node, d.At.UTC()}
	}
	if d.Broken != nil {
		a.Broken = codec.OneLine(d.Broken)
	}
	switch {
	case errors.Is(d.Err, client.ErrNotTried):
		a.Change = NotTried
	case d.Err != nil:
		a.Change, a.Error = Failed, codec.OneLine(d.Err)
	}
	if d.Action != client.Delete {
		a.Handlers = &d.Handlers
	}
	return a
}
