package model

import (
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// rules apply the real rules, of package core, to the states of the small world. The clock stands still
// for them: retries are due at once, and no slot gets old.
type rules struct {
	attempts int
	memo     map[question]answer
}

type question struct {
	slot slot
	self uint8
	dead bool
}

type answer struct {
	action core.Action
	slot   slot
	stored bool // see core.Decision.Stored
}

func newRules(attempts int) *rules {
	return &rules{attempts, map[question]answer{}}
}

var (
	theSlot  = job.NewSlot("report", epoch)
	theTime  = epoch.Add(time.Second)
	stateOf  = map[slotState]job.State{running: job.Running, retrying: job.Retrying, standing: job.Waiting, succeeded: job.Succeeded, failed: job.Failed}
	slotOf   = map[job.State]slotState{job.Running: running, job.Retrying: retrying, job.Waiting: standing, job.Succeeded: succeeded, job.Failed: failed}
	errAgain = errors.New("again")
)

func nodeName(n uint8) string { return string(rune('a' + n)) }

// decide calls core.Decide.
func (r *rules) decide(q question) answer {
	if a, known := r.memo[q]; known {
		return a
	}
	entry := &plans.Entry{Definition: plans.Definition{Job: job.Job{Name: "report", Retry: job.Retry{Attempts: r.attempts}, Overlap: job.OverlapAllow}}}
	d := core.Delivery{Message: core.Message{Slot: theSlot, Due: theSlot.At}, Queue: "default", Published: theSlot.At, Count: 1}
	v := core.View{
		Now: theTime, Self: nodeName(q.self), Horizon: job.DefaultHorizon, OwnerDead: q.dead,
		Entry: entry, Handles: true, Revision: 1,
	}
	if q.slot.state != nothing {
		rec := r.record(q.slot)
		v.Record = &rec
	}
	step := core.Decide(d, v)
	a := answer{action: step.Action}
	if step.Action == core.Start || step.Action == core.End {
		a.slot = abstract(step.Record)
	}
	r.memo[q] = a
	return a
}

// complete calls core.Complete for an attempt that succeeded, failed, or ended because its worker stops.
func (r *rules) complete(s slot, res core.Result) slot {
	return abstract(core.Complete(r.record(s), 1, theTime, job.DefaultHorizon, res))
}

// release calls core.Release.
func (r *rules) release(s slot) slot { return abstract(core.Release(r.record(s), theTime)) }

// record returns a record of the state s.
func (r *rules) record(s slot) job.Record {
	rec := job.Record{
		Slot: theSlot, Queue: "default", State: stateOf[s.state], Attempt: int(s.attempt), MaxAttempts: r.attempts,
		Node: nodeName(s.node), Published: theSlot.At, Due: theSlot.At,
	}
	if s.state == retrying {
		rec.RetryAt = theTime
	}
	for i := range rec.Attempt {
		rec.Attempts = append(rec.Attempts, job.Attempt{Number: i + 1, Node: rec.Node, Started: theSlot.At})
	}
	return rec
}

// abstract returns the state of a record.
func abstract(rec job.Record) slot {
	state, known := slotOf[rec.State]
	if !known || len(rec.Attempts) != rec.Attempt {
		panic(fmt.Sprintf("the rules made a record that the model has no words for: %+v", rec))
	}
	s := slot{state: state, attempt: uint8(rec.Attempt)}
	if state == running {
		s.node = rec.Node[0] - 'a'
	}
	return s
}
