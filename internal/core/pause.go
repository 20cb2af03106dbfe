package core

import (
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Window is a time in which a job was paused: what fell due after From, up to and
// including To, was not published at its time. To is zero while the pause lasts.
type Window struct {
	From, To time.Time
}

// maxPauses bounds the windows that a definition keeps, the newest. What fell due
// in a forgotten one has its outcome long since.
const maxPauses = 50

// Pause computes what replaces e so that its job is paused, in the name of node
// (who writes it). The pause begins with the broker's timestamp of the entry that
// brings it. It is false when the job is paused already: nothing is to be
// written. Like all edits it is to be written at e.Revision, with a nonce.
func Pause(e Entry, node string) (Definition, bool) {
	d := e.revised(node)
	d.Paused = true
	return d, !e.Paused
}

// Resume is the opposite of Pause. What fell due during the pause is missed then,
// however short the pause was, and the job's catch-up policy decides what of it
// runs (see Entry.IfResumed).
func Resume(e Entry, node string) (Definition, bool) {
	d := e.revised(node)
	d.Paused = false
	return d, e.Paused
}

// revised is the entry's definition as the beginning of an edit: everything that
// its own timestamp said, which the next one will not say, is written out.
func (e Entry) revised(node string) Definition {
	d := e.Definition
	d.Since, d.Node, d.Nonce = e.Since(), node, ""
	return d
}

// settlePauses fills in what the writer of the entry could not know: a pause
// without an end ends with the entry that is not paused any more, and a paused
// entry without such a one begins it.
func (e *Entry) settlePauses() {
	n := len(e.Pauses)
	for i := range n - 1 { // hand-written: only the last may be open
		if e.Pauses[i].To.IsZero() {
			e.Pauses[i].To = e.Pauses[i+1].From
		}
	}
	open := n > 0 && e.Pauses[n-1].To.IsZero()
	switch {
	case e.Paused && !open:
		e.Pauses = append(e.Pauses, Window{From: e.Time})
	case !e.Paused && open:
		e.Pauses[n-1].To = e.Time
	}
	e.Pauses = codec.Last(e.Pauses, maxPauses)
}

// PausedAt returns the pause in which a slot with this due time falls due.
func (e Entry) PausedAt(due time.Time) (Window, bool) {
	for _, w := range e.Pauses {
		if due.After(w.From) && (w.To.IsZero() || !due.After(w.To)) {
			return w, true
		}
	}
	return Window{}, false
}

// Stretches cuts the slots of p, one of the entry's plans, whose schedule is s, at
// the job's pauses. What falls due in a pause that has ended is a stretch of its
// own; what falls due in one that lasts is none yet.
func (e Entry) Stretches(p PastPlan, s *job.Schedule) []Stretch {
	var cut []Stretch
	at := Stretch{Schedule: s, After: p.From, Until: p.To, Since: p.From}
	ends := func(t time.Time) bool { return !p.To.IsZero() && !t.Before(p.To) }
	for _, w := range e.Pauses {
		from, to := w.From.Add(-s.Delay()), w.To.Add(-s.Delay()) // of instants, not of due times
		if ends(from) {
			break
		}
		if from.After(at.After) {
			before := at
			before.Until = from
			cut = append(cut, before)
		}
		switch {
		case w.To.IsZero():
			return cut
		case !to.After(at.After):
			continue
		}
		pause := Stretch{Schedule: s, After: latest(at.After, from), Until: to, Since: w.To, Paused: true}
		if ends(to) {
			pause.Until = p.To
			return append(cut, pause)
		}
		cut = append(cut, pause)
		at.After, at.Since = to, w.To
	}
	return append(cut, at)
}

// IfResumed says what a paused job's catch-up policy would make of the pause if
// it ended now, by the broker's clock: how many slots were missed, and how many
// of them would run. A zero horizon is DefaultHorizon. A job that is not paused
// has missed nothing.
func (e Entry) IfResumed(now time.Time, horizon time.Duration) (missed, runs int, err error) {
	if !e.Paused {
		return 0, 0, nil
	}
	if horizon == 0 {
		horizon = job.DefaultHorizon
	}
	e.Pauses = append([]Window(nil), e.Pauses...)
	e.Pauses[len(e.Pauses)-1].To = now
	var pause []Stretch
	for _, p := range e.Plans() {
		s, err := job.ParseSchedule(e.Job.Name, p.Plan)
		if err != nil {
			return 0, 0, err
		}
		for _, part := range e.Stretches(p, s) {
			if part.Paused && part.Since.Equal(now) {
				pause = append(pause, part)
			}
		}
	}
	for _, slot := range Due(pause, e.Job.WithDefaults().CatchUp, now, Lateness{Horizon: horizon}) {
		if slot.CaughtUp {
			runs++
		}
		missed += max(slot.Missed, 1)
	}
	return missed, runs, nil
}
