package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
)

// parts is the message of a whole slot, or those of its n parts.
func (m Message) parts(n int) []Message {
	if n == 0 {
		return []Message{m}
	}
	parts := make([]Message, n)
	for i := range parts {
		parts[i] = m
		parts[i].Slot = m.Slot.Part(i+1, n)
	}
	return parts
}

// Cycle returns jobs that come after each other in a circle, so that none of them
// can ever start, beginning and ending with the same one; nil when there is none.
// Jobs that are named and not among these are not looked into.
func Cycle(jobs []job.Job) []string {
	after := map[string][]string{}
	for _, j := range jobs {
		after[j.Name] = j.After
	}
	const onPath, done = 1, 2
	seen := map[string]int{}
	var path []string
	var visit func(name string) []string
	visit = func(name string) []string {
		switch seen[name] {
		case done:
			return nil
		case onPath:
			return append(slices.Clone(path[slices.Index(path, name):]), name)
		}
		seen[name] = onPath
		path = append(path, name)
		for _, before := range after[name] {
			if before == name {
				continue // which Validate says
			}
			if circle := visit(before); circle != nil {
				return circle
			}
		}
		path = path[:len(path)-1]
		seen[name] = done
		return nil
	}
	for _, j := range jobs {
		if circle := visit(j.Name); circle != nil {
			return circle
		}
	}
	return nil
}

// CheckCycle is the error that there is a Cycle; it wraps ErrInvalid.
func CheckCycle(jobs []job.Job) error {
	if circle := Cycle(jobs); circle != nil {
		return fmt.Errorf("%w after: a circle, in which no job can start: %s", job.ErrInvalid, strings.Join(circle, " after "))
	}
	return nil
}

// Chained reports whether the job came after others at that time.
func (e Entry) Chained(at time.Time) bool {
	p, ok := e.PlanAt(at)
	return ok && len(p.Plan.After) > 0
}

// Chain is what follows from a slot that has succeeded, for one job, e's, that
// comes after its job: the messages of that job's slot of the same instant or
// token. before are the records of all the jobs that e's comes after, of that slot,
// as far as there are some. None are returned while one has not succeeded.
//
// The slot is due when the last of them had succeeded, which all who ask see alike.
// A job comes after slots that succeed while it is there, not after the past.
// It is on time if d, the message of the one that was last seen to, was. If the job
// is paused its slot is recorded as missed: it would vanish otherwise, since
// nothing comes back to it.
func Chain(e Entry, before []job.Record, d Delivery) []Message {
	after := e.Job.After
	if len(after) == 0 || len(before) < len(after) {
		return nil
	}
	m := Message{
		Slot: d.Slot.Whole(), JobRevision: e.Revision, Chained: true,
		CaughtUp: d.CaughtUp || d.Offer > 0, Backfill: d.Backfill,
	}
	m.Slot.Job = e.Job.Name
	for _, r := range before {
		if r.State != job.Succeeded {
			return nil
		}
		m.Due = latest(m.Due, r.Finished)
	}
	if !e.Chained(m.Due) {
		return nil
	}
	if e.Paused {
		m.Missed = 1
		return []Message{m}
	}
	return m.parts(e.Job.WithDefaults().Shards)
}
