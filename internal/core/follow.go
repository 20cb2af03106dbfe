package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// shards returns the messages of a slot's n shards, or m itself if n is 0.
func (m Message) shards(n int) []Message {
	if n == 0 {
		return []Message{m}
	}
	shards := make([]Message, n)
	for i := range shards {
		shards[i] = m
		shards[i].Slot = m.Slot.WithShard(i+1, n)
	}
	return shards
}

// Cycle returns the names of jobs that wait for each other in a cycle, so that none of them can
// ever start. The first and the last name are equal. It returns nil if there is no cycle. Jobs
// that are named in After but not given are ignored.
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
				continue // Validate reports it
			}
			if cycle := visit(before); cycle != nil {
				return cycle
			}
		}
		path = path[:len(path)-1]
		seen[name] = done
		return nil
	}
	for _, j := range jobs {
		if cycle := visit(j.Name); cycle != nil {
			return cycle
		}
	}
	return nil
}

// CheckCycle returns an error that wraps ErrInvalid if there is a Cycle.
func CheckCycle(jobs []job.Job) error {
	if cycle := Cycle(jobs); cycle != nil {
		return fmt.Errorf("%w after: the jobs form a cycle, in which none can start: %s", job.ErrInvalid, strings.Join(cycle, " after "))
	}
	return nil
}

// Chain returns the messages of the slot of e's job that follows the slot of d, which has
// succeeded. before holds the existing records, of the same instant or token, of all jobs that
// e's job comes after. Chain returns nothing until the slots of all these jobs have succeeded.
//
// The slot is due when the last of them succeeded, so every node computes the same due time.
// Chain returns nothing if the plan in force at that time has no After. The new slot is on time
// if d's slot was. If the job is paused, its slot is recorded as missed: nothing would start
// it later.
func Chain(e plans.Entry, before []job.Record, d Delivery) []Message {
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
		if r.Finished.After(m.Due) {
			m.Due = r.Finished
		}
	}
	if !e.ChainedAt(m.Due) {
		return nil
	}
	if e.Paused {
		m.Missed = 1
		return []Message{m}
	}
	return m.shards(e.Job.WithDefaults().Shards)
}
