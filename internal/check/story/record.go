package story

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// explainRecord tells the story of a slot with a record.
func (t *explainer) explainRecord() {
	r := t.record
	t.story.State = r.State
	t.addDue(r.Due)
	how := ""
	if r.Due.After(r.Published) && r.Published.Equal(r.Finished) {
		how = ", and ended before it was due"
	}
	t.addPublished(r.Published, r.Publisher, how)
	if n := len(r.Attempts); n > 0 && r.Attempts[0].Number > 1 {
		t.step(r.Attempts[0].Started, StepStarted, "", "attempts 1 to %d are not kept", r.Attempts[0].Number-1)
	}
	for i, a := range r.Attempts {
		t.addAttempt(a, i == len(r.Attempts)-1)
	}
	t.addEvents()
	switch {
	case r.State.Final():
		t.addOutcome(r)
		t.why("It ended %s%s.", r.State, core.Because(r.Error))
		if r.IsShadow() {
			t.why("It was a shadow: the job's action did not run.")
		}
	case r.State == job.Waiting:
		t.why("%s", t.inLine())
	case r.State == job.Retrying:
		t.why("It waits for attempt %d of %d%s.", r.Attempt+1, r.MaxAttempts, core.Because(r.Error))
		t.step(plans.Later(r.RetryAt, t.now), StepNext, "", "attempt %d of %d is due%s", r.Attempt+1, r.MaxAttempts, t.obstacle(r.Queue))
		if t.removal != "" {
			t.why("%s: only workers that still have a handler for it make further attempts.", t.removal)
		}
		if t.message == nil || t.message.Stranded {
			t.why("But the stream has no message that a worker would receive: cronce slot retry publishes one.")
		}
	case r.Shards > 0:
		t.why("It runs.")
	default:
		t.why("It runs: attempt %d of %d, on %s, %s.", r.Attempt, r.MaxAttempts, r.Node, t.health(r.Node))
	}
}

// addDue adds when the slot was due. A triggered run without a time has no due time.
func (t *explainer) addDue(due time.Time) {
	at := t.story.Slot.At
	switch {
	case due.IsZero() && at.IsZero():
		return
	case due.IsZero():
		due = at
	}
	t.story.Due = due.UTC()
	if t.entry != nil && len(t.entry.Job.After) > 0 {
		t.step(due, StepDue, "", "due: %s had succeeded", strings.Join(t.entry.Job.After, ", "))
		return
	}
	if delay := due.Sub(at); !at.IsZero() && delay > 0 {
		t.step(due, StepDue, "", "due, %v after its instant: the job's spread", delay)
		return
	}
	t.step(due, StepDue, "", "due")
}

func (t *explainer) addPublished(at time.Time, by string, how string) {
	t.step(at, StepPublished, by, "published by %s%s", cmp.Or(by, "an unknown producer"), how)
}

// addOutcome adds the slot's outcome. It leaves out the reason if the last attempt ended
// at the same time, since that step has it.
func (t *explainer) addOutcome(r *job.Record) {
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].Finished.Equal(r.Finished) {
		t.step(r.Finished, StepKind(r.State), r.Node, "outcome: %s", r.State)
		return
	}
	t.step(r.Finished, StepKind(r.State), r.Node, "outcome: %s, recorded by %s%s", r.State, r.Node, core.Because(r.Error))
}

func (t *explainer) addAttempt(a job.Attempt, last bool) {
	r := t.record
	if last && r.State == job.Running {
		a.Fence = t.revision // the claim is the record's last write
	}
	s := t.step(a.Started, StepStarted, a.Node, "attempt %d claimed and started by %s, fence %d", a.Number, a.Node, a.Fence)
	s.Attempt, s.Fence = a.Number, a.Fence
	if a.Finished.IsZero() {
		return
	}
	took := a.Finished.Sub(a.Started).Round(time.Millisecond)
	how := "succeeded"
	switch {
	case a.Error != "":
		how = "failed"
	case a.Number == r.Shadow:
		how = "ended as a shadow, without running the action,"
	case !last || r.State != job.Succeeded:
		how = "ended"
	}
	s = t.step(a.Finished, StepEnded, a.Node, "attempt %d %s after %v%s", a.Number, how, took, core.Because(a.Error))
	s.Attempt, s.Fence = a.Number, a.Fence
}

// addEvents adds the steps that only events record.
func (t *explainer) addEvents() {
	for _, e := range t.events {
		switch {
		case e.Reopened:
			t.step(e.Time, StepReopened, e.Node, "%s", cmp.Or(e.Error, "reopened"))
		case e.Kind == job.EventFenced:
			t.step(e.Time, StepKind(e.Kind), e.Node, "node %s was declared dead by %s", e.Peer, e.Node).Peer = e.Peer
		case e.Kind == job.EventTakeover:
			t.step(e.Time, StepKind(e.Kind), e.Node, "%s took it over from %s, which is dead", e.Node, e.Peer).Peer = e.Peer
		case e.Kind == job.EventRefused:
			s := t.step(e.Time, StepKind(e.Kind), e.Node, "attempt %d on %s ended too late: its completion was refused%s", e.Attempt, e.Node, core.Because(e.Error))
			s.Attempt, s.Fence = e.Attempt, e.Fence
		case e.Alert != "":
			t.step(e.Time, StepKind(e.Kind), e.Node, "alert published: %s", e.Alert)
		case e.Kind == job.EventAlert:
			t.step(e.Time, StepKind(e.Kind), e.Node, "alert%s", core.Because(e.Error))
		case t.undone(e):
			t.step(e.Time, StepKind(e.Kind), e.Node, "outcome: %s, recorded by %s%s", e.Kind, e.Node, core.Because(e.Error))
		}
	}
}

// undone reports whether the event is an outcome that a reopening of the slot removed. The record
// has only the last outcome.
func (t *explainer) undone(e job.Event) bool {
	return job.State(e.Kind).Final() && slices.ContainsFunc(t.events, func(later job.Event) bool {
		return later.Reopened && !later.Time.Before(e.Time)
	})
}

// explainShards adds how many shards are in each state.
func (t *explainer) explainShards(ctx context.Context) error {
	whole, n := t.story.Slot, t.record.Shards
	states := map[job.State]int{}
	for i := range n {
		shard := whole.WithShard(i+1, n)
		r, _, err := t.Record(ctx, shard)
		switch {
		case err != nil:
			return err
		case r == nil:
			states[job.Pending]++
			continue
		}
		states[r.State]++
		if r.State.Final() {
			t.step(r.Finished, StepKind(r.State), r.Node, "shard %s: %s%s", shard.ID(), r.State, core.Because(r.Error)).Attempt = r.Attempt
		}
	}
	all := codec.Map(slices.Sorted(maps.Keys(states)), func(state job.State) string { return fmt.Sprintf("%d %s", states[state], state) })
	t.why("It is split into %d shards: %s. To see one: cronce slot explain %s", n, strings.Join(all, ", "), whole.WithShard(1, n).ID())
	return nil
}
