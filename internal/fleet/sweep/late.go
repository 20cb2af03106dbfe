package sweep

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Alerts stores alerts about slots that have not started in time.
type Alerts interface {
	// Alert stores an alert under a message ID, and waits until the broker has it.
	Alert(ctx context.Context, e job.Event, id string) error

	// HasAlert reports whether an alert like e is stored; see kv.Store.
	HasAlert(ctx context.Context, e job.Event, id string, since time.Time) (bool, error)

	// Events lists the stored events.
	Events(ctx context.Context, f kv.EventFilter) iter.Seq2[job.Event, error]
}

// AlertStates stores which jobs are in trouble. kv.AlertStates satisfies it.
type AlertStates interface {
	Read(ctx context.Context, name string) (exchange.AlertState, uint64, error)
	Write(ctx context.Context, state exchange.AlertState, revision uint64) (uint64, error)
}

// awaited is a slot of a job with on_late that is not known to have started in time.
type awaited struct {
	due      time.Time
	revision uint64 // of its job
}

// jobsWithLateAlert returns the jobs that ask for an alert about late slots, by name.
func (s *Sweeper) jobsWithLateAlert() map[string]plans.Entry {
	jobs := map[string]plans.Entry{}
	for _, e := range s.cfg.Late() {
		jobs[e.Job.Name] = e
	}
	return jobs
}

// await adds the slots of these jobs that were published since the last pass to awaited. At the
// first pass it adds all slots that this node remembers, and the slots that have a message:
// another node may have published them and died.
func (s *Sweeper) await(ctx context.Context, jobs map[string]plans.Entry, recent []publishedSlot) error {
	if len(jobs) == 0 {
		s.awaited, s.seeded = map[job.Slot]awaited{}, false
		return nil
	}
	note := func(slot job.Slot, due time.Time, revision uint64) {
		if _, asks := jobs[slot.Job]; asks && len(s.awaited) < maxPublished {
			s.awaited[slot] = awaited{due, revision}
		}
	}
	for _, p := range recent {
		note(p.slot, p.due, p.revision)
	}
	if s.seeded {
		return nil
	}
	for _, p := range s.published {
		note(p.slot, p.due, p.revision)
	}
	for w, err := range s.cfg.Slots.Waiting(ctx, stream.WaitingFilter{}) {
		switch {
		case errors.Is(err, job.ErrInvalid): // it is no slot's message
		case err != nil:
			return err
		case w.Missed == 0 && !w.Backfill && w.Slot.Token == "" && !w.Slot.Range:
			note(w.Slot, w.Due, w.JobRevision)
		}
	}
	s.seeded = true
	return nil
}

// noteStart removes a slot from awaited if its record says that the slot started, or ended, in time:
// the record was written before the slot was late.
func (s *Sweeper) noteStart(c kv.Change, jobs map[string]plans.Entry) {
	if a, ok := s.awaited[c.Slot]; ok && !c.Gone && c.Time.Sub(a.due) <= jobs[c.Slot.Job].Job.LateAfter && c.State != job.Retrying {
		delete(s.awaited, c.Slot)
	}
}

// alertLate publishes an alert for each slot that should have started by now and has not.
func (s *Sweeper) alertLate(ctx context.Context, jobs map[string]plans.Entry) error {
	now := s.cfg.Now()
	lateSlots := map[job.Slot]awaited{}
	for slot, a := range s.awaited {
		entry, asks := jobs[slot.Job]
		switch {
		case !asks || now.Sub(a.due) > s.cfg.Horizon:
			delete(s.awaited, slot)
		case now.Sub(a.due) > entry.Job.LateAfter:
			lateSlots[slot] = a
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	alerts := map[string]*lateAlerts{}
	for slot, a := range lateSlots {
		t := alerts[slot.Job]
		if t == nil {
			t = &lateAlerts{Sweeper: s, entry: jobs[slot.Job]}
			alerts[slot.Job] = t
		}
		group.Go(func() error {
			if err := t.judge(ctx, slot, a); err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.awaited, slot)
			return nil
		})
	}
	err := group.Wait()
	if errors.Is(err, job.ErrDenied) {
		s.cfg.Logger.Warn("cannot publish alerts about late slots: the login has the permissions of an older version", "error", err, "fix", "cronce auth producer")
		return nil
	}
	return err
}

// lateAlerts publishes the alerts about late slots of one job.
type lateAlerts struct {
	*Sweeper
	entry plans.Entry

	// alerted has the time at which each stored alert was sent, by slot ID. It is nil before the
	// first read. readAt is when the last read began.
	reading sync.Mutex // not Sweeper.mu, for which the producer waits in Published
	alerted map[string]time.Time
	readAt  time.Time
}

// judge publishes the alert about a slot if its record does not say that it started in time. A pass
// may take so long that another node makes one too. So judge looks for an alert of that node unless
// the stream would fold a second one now.
func (t *lateAlerts) judge(ctx context.Context, slot job.Slot, a awaited) error {
	rec, _, err := t.cfg.Ledger.Read(ctx, slot)
	switch {
	case exchange.IsUnreadable(err):
		return nil
	case err != nil && !errors.Is(err, job.ErrNotFound):
		return err
	case err == nil && !isLate(rec, a.due, t.entry.Job.LateAfter):
		return nil
	}
	if err != nil {
		switch needs, err := t.needsRecord(ctx, slot); {
		case err != nil && !exchange.IsUnreadable(err):
			return err
		case !needs:
			return nil
		}
	}
	whole, now := slot.Whole(), t.cfg.Now()
	if now.Sub(a.due)-t.entry.Job.LateAfter > exchange.AlertsFold {
		// The node that sent the alert may have died before it noted the trouble.
		switch sent, err := t.alertOf(ctx, whole, a.due); {
		case err != nil:
			return err
		case !sent.IsZero():
			return t.noteTrouble(ctx, whole, sent)
		}
	}
	e := job.Event{
		V: codec.Version, Kind: job.EventAlert, Alert: job.AlertLate, Time: now.UTC(), Node: t.cfg.Node, ID: whole.ID(), Job: slot.Job, JobRevision: a.revision,
		Error: fmt.Sprintf("not started within %v of its due time, %s", t.entry.Job.LateAfter, a.due.UTC().Format(time.RFC3339)),
	}
	if err := t.cfg.Alerts.Alert(ctx, e, whole.ID()+"/alert/"+string(job.AlertLate)); err != nil {
		return fmt.Errorf("alert about late slot %s: %w", whole, err)
	}
	t.cfg.Logger.Warn("slot is late", "slot", whole.ID(), "due", a.due.UTC())
	return t.noteTrouble(ctx, whole, now)
}

// isLate reports whether the slot has not started, or has started late. A slot that ended without
// a start is not late: it has another alert, or needs none.
func isLate(rec job.Record, due time.Time, after time.Duration) bool {
	switch {
	case rec.Shards > 0:
		return false // each of its shards is judged
	case len(rec.Attempts) > 0:
		return rec.Attempts[0].Number <= 1 && rec.Attempts[0].Started.Sub(due) > after
	}
	return !rec.State.Final()
}

// alertOf returns when the alert about the slot was sent, by the stored events, and zero if there is
// none. A login with the permissions of an older version may not read the events: then the alert may
// be published twice.
func (t *lateAlerts) alertOf(ctx context.Context, slot job.Slot, since time.Time) (time.Time, error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	if t.alerted == nil || t.cfg.Now().Sub(t.readAt) > exchange.AlertsFold {
		alerted, began := map[string]time.Time{}, t.cfg.Now()
		for e, err := range t.cfg.Alerts.Events(ctx, kv.EventFilter{Job: slot.Job, Since: since.Add(-t.cfg.Horizon)}) {
			switch {
			case errors.Is(err, job.ErrDenied):
				t.alerted, t.readAt = map[string]time.Time{}, began
				return time.Time{}, nil
			case exchange.IsUnreadable(err):
			case err != nil:
				return time.Time{}, fmt.Errorf("list the alerts about late slots of job %s: %w", slot.Job, err)
			case e.Alert == job.AlertLate:
				alerted[e.ID] = e.Time
			}
		}
		t.alerted, t.readAt = alerted, began
	}
	return t.alerted[slot.ID()], nil
}

// noteTrouble stores that the job is in trouble since an alert was sent, if it asks for an alert when
// it recovers. The next success ends the trouble, and noteTrouble leaves a later state as it is. It does
// not change Revision in the state, because a slot that has not started has no record.
func (t *lateAlerts) noteTrouble(ctx context.Context, slot job.Slot, sent time.Time) error {
	if t.entry.Job.OnRecovered == nil {
		return nil
	}
	state, revision, err := t.cfg.AlertStates.Read(ctx, slot.Job)
	switch {
	case exchange.IsUnreadable(err):
		return nil
	case err != nil && !errors.Is(err, job.ErrNotFound):
		return err
	case state.Failed && state.ID == slot.ID(): // the node that noted it may have died before endTrouble
		return t.endTrouble(ctx, slot, state, revision)
	case err == nil && (state.Failed || state.Time.After(sent)):
		return nil
	}
	state.Job, state.Failed, state.ID, state.Time = slot.Job, true, slot.ID(), sent.UTC()
	revision, err = t.writeState(ctx, state, revision)
	if err != nil || revision == 0 {
		return err
	}
	return t.endTrouble(ctx, slot, state, revision)
}

// endTrouble handles a late slot that succeeded before its job's trouble was stored, so that its worker
// found none: it publishes the alert about the recovery, and then stores that the job has recovered. If
// the slot succeeds after endTrouble has read its record, its worker does that.
func (t *lateAlerts) endTrouble(ctx context.Context, slot job.Slot, state exchange.AlertState, revision uint64) error {
	rec, at, err := t.cfg.Ledger.Read(ctx, slot)
	switch {
	case errors.Is(err, job.ErrNotFound), exchange.IsUnreadable(err):
		return nil
	case err != nil:
		return err
	case rec.State != job.Succeeded, rec.IsShadow():
		return nil
	}
	e := exchange.NewAlert(rec, at, job.AlertRecovered)
	e.Node, e.Since = t.cfg.Node, state.ID
	if err := kv.AlertOnce(ctx, t.cfg.Alerts, e, state.RecoveredID(), state.Time, t.cfg.Now(), t.cfg.Lease/4); err != nil {
		return fmt.Errorf("alert that job %s has recovered: %w", slot.Job, err)
	}
	// The state may contain the outcome of a slot that ended after this one.
	state.Failed, state.Revision, state.Time = false, max(state.Revision, at), plans.Later(state.Time, rec.Finished.UTC())
	_, err = t.writeState(ctx, state, revision)
	return err
}

// writeState writes the state at revision. It returns 0 and no error if the login may not write it, or
// if a worker has just written a state, which takes precedence.
func (t *lateAlerts) writeState(ctx context.Context, state exchange.AlertState, revision uint64) (uint64, error) {
	state.Nonce = t.cfg.Node + "#" + rand.Text()
	revision, err := t.cfg.AlertStates.Write(ctx, state, revision)
	if errors.Is(err, job.ErrConflict) || errors.Is(err, job.ErrDenied) {
		return 0, nil
	}
	return revision, err
}
