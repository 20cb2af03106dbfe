package model

import (
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// The functions below apply the rules of package core to the states of the world with a lock. The clock
// stands still.

func (m *locking) job() *plans.Entry {
	return &plans.Entry{Definition: plans.Definition{Job: job.Job{Name: "report", Retry: job.Retry{Attempts: m.attempts}, Overlap: m.policy}}}
}

func (m *locking) delivery(n int, offered bool) core.Delivery {
	s := slotAt(int64(n))
	d := core.Delivery{Message: core.Message{Slot: s, Due: s.At}, Queue: "default", Published: s.At, Count: 1}
	if offered {
		d.Offer = 5
	}
	return d
}

func (m *locking) view(n int, seen slot, self uint8) core.View {
	v := core.View{Now: epoch.Add(time.Hour), Self: nodeName(self), Horizon: job.DefaultHorizon, Entry: m.job(), Handles: true, Revision: 1}
	if seen.state != nothing {
		rec := m.record(n, seen)
		v.Record = &rec
	}
	return v
}

func (m *locking) record(n int, s slot) job.Record {
	r := newRules(max(m.attempts, int(s.attempt)+1))
	if s.state != retrying {
		r.attempts = max(m.attempts, int(s.attempt))
	}
	rec := r.record(s)
	rec.Slot = slotAt(int64(n))
	rec.OnTime = s.state == standing && core.Supersedes(m.policy)
	return rec
}

func (m *locking) complete(n int, s slot, res core.Result) slot {
	s.state = running
	return m.abstract(core.Complete(m.record(n, s), 1, epoch.Add(time.Hour), job.DefaultHorizon, res))
}

// abstract returns the state of a record. One that is retried keeps the node that wrote it.
func (m *locking) abstract(rec job.Record) slot {
	if rec.State == job.Skipped || rec.State == job.Cancelled {
		rec.State = job.Failed // an outcome, and no run
	}
	s := abstract(rec)
	if s.state == retrying {
		s.node = rec.Node[0] - 'a'
	}
	return s
}

var (
	placeOf    = map[placed]core.AdmissionKind{unasked: core.AdmissionUnasked, held: core.AdmissionGranted, waits: core.AdmissionQueued, barred: core.AdmissionSkipped}
	placeNamed = map[core.AdmissionKind]placed{core.AdmissionGranted: held, core.AdmissionQueued: waits, core.AdmissionSkipped: barred}
)

func (m *locking) decision(q decision) answer {
	if a, known := m.decisions[q]; known {
		return a
	}
	v := m.view(q.n, q.seen, q.self)
	v.OwnerDead, v.Admission.Kind = q.dead, placeOf[q.place]
	if m.claimFirst {
		v.Admission.Kind = core.AdmissionGranted
	}
	s := core.Decide(m.delivery(q.n, q.again), v)
	a := answer{action: s.Action, stored: s.Stored}
	if s.Action == core.Start || s.Action == core.End || s.Action == core.Stand {
		a.slot = m.abstract(s.Record)
	}
	m.decisions[q] = a
	return a
}

func index(s job.Slot) int { return int(s.At.Sub(epoch) / time.Minute) }

func (m *locking) lock(l lock) core.Lock {
	full := core.Lock{Job: "report", Waiting: l.waiting, Line: uint64(l.line) + 1}
	for n := range maxSlots {
		if !l.holds(n) {
			continue
		}
		s := slotAt(int64(n))
		h := core.LockSlot{Slot: s, At: s.At, OnTime: core.Supersedes(m.policy)}
		if node := l.place[n] - 1; node != nobody {
			h.Node = nodeName(node)
		}
		full.Holders = append(full.Holders, h)
	}
	if l.newest > 0 {
		full.Newest = slotAt(int64(l.newest - 1)).At
	}
	return full
}

func (m *locking) unlock(full core.Lock) (l lock) {
	l.waiting, l.line = full.Waiting, uint8(max(full.Line, 1)-1)
	for _, h := range full.Holders {
		node := uint8(nobody)
		if h.Node != "" {
			node = h.Node[0] - 'a'
		}
		l.place[index(h.Slot)] = node + 1
	}
	if !full.Newest.IsZero() {
		l.newest = uint8(index(job.Slot{At: full.Newest})) + 1
	}
	return l
}
