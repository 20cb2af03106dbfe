package plans

import (
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Window is a pause of a job: slots that fell due after From, up to and including To, were not
// published. To is zero while the pause lasts.
type Window struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"`
}

// maxPauses bounds the pauses that a definition keeps. The newest stay; the slots of older ones
// have their outcomes.
const maxPauses = 50

// Pause returns the definition that replaces e so that its job is paused. The pause begins at the
// broker's timestamp of the new entry. It returns false if the job is paused already. The caller
// sets a nonce, and writes at e.Revision.
func Pause(e Entry, node string) (Definition, bool) {
	d := e.revised(node)
	d.Paused = true
	return d, !e.Paused
}

// Resume reverts Pause. Every slot that fell due during the pause is late: the job's catch-up
// policy decides which of them run, and the others end as Missed (see Entry.IfResumed). It returns
// false if the job is not paused.
func Resume(e Entry, node string) (Definition, bool) {
	d := e.revised(node)
	d.Paused = false
	return d, e.Paused
}

// revised returns the entry's definition for an edit. It sets Since, which may have been the
// timestamp of the entry: the new entry has another one.
func (e Entry) revised(node string) Definition {
	d := e.Definition
	d.Since, d.Node, d.Nonce = e.Since(), node, ""
	return d
}

// settlePauses fills in the bounds that the writer of the entry could not know. If the entry is
// paused and has no open pause, a pause begins at the timestamp of the entry. If it is not paused
// and has one, that pause ends there.
func (e *Entry) settlePauses() {
	n := len(e.Pauses)
	for i := range n - 1 { // only the last may be open; another one was written by hand
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

// PausedAt returns the pause in which a slot with this due time fell due, and false if there was
// none.
func (e Entry) PausedAt(due time.Time) (Window, bool) {
	for _, w := range e.Pauses {
		if due.After(w.From) && (w.To.IsZero() || !due.After(w.To)) {
			return w, true
		}
	}
	return Window{}, false
}

// Stretches cuts the slots of p, a plan of the entry with the schedule s, at the job's pauses. The
// slots of a pause that has ended are a stretch; those of a pause that lasts are in none yet.
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
		pause := Stretch{Schedule: s, After: Later(at.After, from), Until: to, Since: w.To, Paused: true}
		if ends(to) {
			pause.Until = p.To
			return append(cut, pause)
		}
		cut = append(cut, pause)
		at.After, at.Since = to, w.To
	}
	return append(cut, at)
}

// IfResumed returns how many slots of a paused job fell due during the pause, and how many of
// them would run if the job were resumed now, by the broker's clock. A horizon of zero means
// DefaultHorizon. If the job is not paused, both results are zero.
func (e Entry) IfResumed(now time.Time, horizon time.Duration) (due, runs int, err error) {
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
		if err != nil && !p.To.IsZero() {
			continue // no producer can compute the past plan either
		}
		if err != nil {
			return 0, 0, err
		}
		for _, part := range e.Stretches(p, s) {
			if part.Paused && part.Since.Equal(now) {
				pause = append(pause, part)
			}
		}
	}
	for _, slot := range Due(pause, e.Job.WithDefaults().CatchUp, now, horizon) {
		if slot.CaughtUp {
			runs++
		}
		due += max(slot.Missed, 1)
	}
	return due, runs, nil
}
