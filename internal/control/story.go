package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Story is what became of one slot, in order, or why there is no such slot.
type Story struct {
	Slot job.Slot

	// State is empty when there is no such slot.
	State job.State

	// Due is when it was to be published; what the steps are late against.
	Due time.Time

	Steps []Step

	// Why says in a sentence how it stands: what it waits for, why it ended so,
	// or why there is none.
	Why string

	// Before and After are the job's nearest slots, when this one is none.
	Before, After time.Time
}

// Step is one thing that happened, or will.
type Step struct {
	Time time.Time
	What StepKind
	Node string

	// Attempt and Fence are set where an attempt is meant.
	Attempt int
	Fence   uint64

	// Text tells it to a person.
	Text string
}

// StepKind is what happened: one of these, or the state or kind of event that the
// slot came to.
type StepKind string

const (
	StepDue       StepKind = "due"
	StepPublished StepKind = "published"
	StepStarted   StepKind = "started"
	StepEnded     StepKind = "ended"
	StepReopened  StepKind = "reopened"
	StepNext      StepKind = "next" // what is to come
)

// Explain tells the story of a slot. It only reads, and what it reads are hints:
// the newest step may be missing.
func (c *Control) Explain(ctx context.Context, s job.Slot) (Story, error) {
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return Story{}, err
	}
	t := teller{Control: c, now: now, story: Story{Slot: s, Due: s.At}}
	if err := t.read(ctx); err != nil {
		return Story{}, err
	}
	switch {
	case t.record != nil:
		t.recorded()
		if t.record.Shards > 0 {
			err = t.shards(ctx)
		}
	case t.waits != nil:
		t.pending()
	default:
		err = t.absent(ctx)
	}
	slices.SortStableFunc(t.story.Steps, func(x, y Step) int { return x.Time.Compare(y.Time) })
	return t.story, err
}

// teller gathers what is known of one slot.
type teller struct {
	*Control
	now   time.Time
	story Story

	record   *job.Record
	revision uint64 // of the record
	waits    *kv.WaitingSlot
	entry    *core.Entry // nil: no such job, or it cannot be read
	broken   error       // why it cannot be read
	lock     core.Lock   // the job's; nothing in it if it has none
	noLock   error       // why it cannot be read
	nodes    []core.NodeEvent
	events   []job.Event
}

func (t *teller) read(ctx context.Context) (err error) {
	s := t.story.Slot
	// The message first: a slot that is claimed and gone from the stream in
	// between shows by its record.
	if t.waits, err = t.message(ctx, s); err != nil {
		return err
	}
	if t.record, t.revision, err = t.Control.record(ctx, s); err != nil {
		return err
	}
	e, _, err := t.cfg.Jobs.Read(ctx, s.Job)
	switch {
	case err == nil:
		t.entry = &e
	case unreadable(err):
		t.broken = err
	case !errors.Is(err, job.ErrNotFound):
		return err
	}
	switch t.lock, _, err = t.cfg.Locks.Read(ctx, s.Job); {
	case unreadable(err):
		t.noLock = err
	case err != nil && !errors.Is(err, job.ErrNotFound):
		return err
	}
	if t.nodes, err = t.cfg.Nodes.List(ctx); err != nil {
		return err
	}
	t.cfg.Alive()
	since := s.At
	if t.record != nil {
		since = t.record.Published
	}
	for _, about := range []string{s.Job, core.NoJob} {
		for e, err := range t.cfg.Fleet.Events(ctx, kv.EventFilter{Job: about, Since: since.Add(-time.Minute)}) {
			t.cfg.Alive()
			if err != nil && !unreadable(err) {
				return err
			}
			if err == nil && t.concerns(e) {
				t.events = append(t.events, e)
			}
		}
	}
	return nil
}

// concerns reports whether an event is of the slot, or of a node that held it.
func (t *teller) concerns(e job.Event) bool {
	if e.ID == t.story.Slot.ID() {
		return true
	}
	return e.Kind == job.EventFenced && t.record != nil &&
		slices.ContainsFunc(t.record.Attempts, func(a job.Attempt) bool { return a.Node == e.Peer })
}

func (t *teller) step(at time.Time, what StepKind, node, format string, args ...any) *Step {
	t.story.Steps = append(t.story.Steps, Step{Time: at.UTC(), What: what, Node: node, Text: fmt.Sprintf(format, args...)})
	return &t.story.Steps[len(t.story.Steps)-1]
}

// due tells of the planned time, unless it is a triggered run, which has none.
func (t *teller) due(due time.Time) {
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

func (t *teller) published(at time.Time, by string, how string) {
	t.step(at, StepPublished, by, "published by %s%s", cmp.Or(by, "a producer that did not say its name"), how)
}

// recorded tells the story of a slot with a record.
func (t *teller) recorded() {
	r := t.record
	t.story.State = r.State
	t.due(r.Due)
	how := ""
	if r.Due.After(r.Published) && r.Published.Equal(r.Finished) {
		how = ", but its time had not come"
	}
	t.published(r.Published, r.Publisher, how)
	if n := len(r.Attempts); n > 0 && r.Attempts[0].Number > 1 {
		t.step(r.Attempts[0].Started, StepStarted, "", "attempts 1 to %d are not kept", r.Attempts[0].Number-1)
	}
	for i, a := range r.Attempts {
		t.attempt(a, i == len(r.Attempts)-1)
	}
	t.told()
	if r.State.Final() {
		t.outcome(r)
		t.story.Why = fmt.Sprintf("It ended %s%s.", r.State, because(r.Error))
		return
	}
	if r.State == job.Retrying {
		t.story.Why = fmt.Sprintf("It waits for attempt %d of %d%s.", r.Attempt+1, r.MaxAttempts, because(r.Error))
		t.step(later(r.RetryAt, t.now), StepNext, "", "attempt %d of %d is due%s", r.Attempt+1, r.MaxAttempts, t.obstacle(r.Queue))
		if t.waits == nil || t.waits.Stranded {
			t.story.Why += " But it has no message in the stream that a worker would get: cronce slot retry offers it again."
		}
		return
	}
	if r.Shards > 0 {
		t.story.Why = "It runs."
		return
	}
	t.story.Why = fmt.Sprintf("It runs: attempt %d of %d, on %s, %s.", r.Attempt, r.MaxAttempts, r.Node, t.health(r.Node))
}

// outcome tells how the slot ended, in few words if its last attempt told them.
func (t *teller) outcome(r *job.Record) {
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].Finished.Equal(r.Finished) {
		t.step(r.Finished, StepKind(r.State), r.Node, "outcome: %s", r.State)
		return
	}
	t.step(r.Finished, StepKind(r.State), r.Node, "outcome: %s, recorded by %s%s", r.State, r.Node, because(r.Error))
}

func (t *teller) attempt(a job.Attempt, last bool) {
	r := t.record
	if last && r.State == job.Running {
		a.Fence = t.revision // its claim is the record's last write
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
	case !last || r.State != job.Succeeded:
		how = "ended"
	}
	s = t.step(a.Finished, StepEnded, a.Node, "attempt %d %s after %v%s", a.Number, how, took, because(a.Error))
	s.Attempt, s.Fence = a.Number, a.Fence
}

// told adds what only events tell of.
func (t *teller) told() {
	for _, e := range t.events {
		switch {
		case e.Reopened:
			t.step(e.Time, StepReopened, e.Node, "%s", cmp.Or(e.Error, "given a new start"))
		case e.Kind == job.EventFenced:
			t.step(e.Time, StepKind(e.Kind), e.Node, "node %s was declared dead by %s", e.Peer, e.Node)
		case e.Kind == job.EventTakeover:
			t.step(e.Time, StepKind(e.Kind), e.Node, "%s took it over from %s, which is dead", e.Node, e.Peer)
		case e.Kind == job.EventRefused:
			t.step(e.Time, StepKind(e.Kind), e.Node, "attempt %d on %s ended too late, and was refused%s", e.Attempt, e.Node, because(e.Error))
		case e.Alert != "":
			t.step(e.Time, StepKind(e.Kind), e.Node, "an alert was handed on: %s", e.Alert)
		case e.Kind == job.EventAlert:
			t.step(e.Time, StepKind(e.Kind), e.Node, "alert%s", because(e.Error))
		case t.undone(e):
			t.step(e.Time, StepKind(e.Kind), e.Node, "outcome: %s, recorded by %s%s", e.Kind, e.Node, because(e.Error))
		}
	}
}

// undone reports whether the event is of an outcome that a new start undid: the
// record knows only its last one.
func (t *teller) undone(e job.Event) bool {
	return job.State(e.Kind).Final() && slices.ContainsFunc(t.events, func(later job.Event) bool {
		return later.Reopened && !later.Time.Before(e.Time)
	})
}

// pending tells the story of a slot that waits in the stream.
func (t *teller) pending() {
	w := t.waits
	t.story.State = job.Pending
	t.due(w.Due)
	how := ""
	switch {
	case w.Missed > 0 && w.Chained:
		how = ", to be recorded as missed: the job is paused"
	case w.Missed > 0:
		how = ", to be recorded as missed: the catch-up policy leaves it out"
	case w.Chained:
		how = ", since what it comes after has succeeded"
	case w.Backfill:
		how = ", as an operator asked"
	case w.CaughtUp:
		how = ", late, by the catch-up policy"
	case w.Offer > 0:
		how = ", again: an earlier message was lost"
	}
	if w.Timer {
		t.story.Why = fmt.Sprintf("It was triggered by %s, and waits for its time, %s.", cmp.Or(w.Node, "somebody"), stamp(w.Due))
		return
	}
	t.published(w.Published, w.Node, how)
	t.told()
	if w.Stranded {
		t.story.Why = fmt.Sprintf("It waits in queue %s, but the server gives its message to nobody any more, as happens when others of the stream are purged by hand. "+
			"The fleet offers it again within two minutes.", w.Queue)
		return
	}
	t.story.Why = fmt.Sprintf("It waits in queue %s%s.", w.Queue, cmp.Or(t.obstacle(w.Queue), t.unasked(w), ", for a free place of a worker"))
}

// obstacle says what keeps a slot of the queue from being started; nothing: no
// more than the work before it.
func (t *teller) obstacle(queue string) string {
	workers, handlers := 0, 0
	for _, ev := range t.nodes {
		if n := ev.Node; ev.Err == nil && t.alive(ev) && slices.Contains(n.Queues, queue) {
			workers++
			if slices.Contains(n.Handlers, t.story.Slot.Job) {
				handlers++
			}
		}
	}
	switch {
	case workers == 0:
		return fmt.Sprintf(", and no live node works on queue %s", queue)
	case handlers == 0:
		return fmt.Sprintf(", and none of the %d live nodes that work on queue %s has a handler for job %s", workers, queue, t.story.Slot.Job)
	}
	return t.inWay()
}

// idleFor is how long a slot may wait for workers that run nothing before they are
// taken not to ask for it: heartbeats tell what they run.
const idleFor = 10 * time.Second

// unasked says that the workers that would run the slot have room, and leave it.
func (t *teller) unasked(w *kv.WaitingSlot) string {
	if t.now.Sub(w.Published) < idleFor {
		return ""
	}
	var idle []string
	for _, ev := range t.nodes {
		if n := ev.Node; ev.Err == nil && t.alive(ev) && slices.Contains(n.Queues, w.Queue) && slices.Contains(n.Handlers, t.story.Slot.Job) {
			if n.Running > 0 {
				return ""
			}
			idle = append(idle, ev.Name)
		}
	}
	return fmt.Sprintf(", and its workers run nothing and do not take it: a service that they call is not ready (ready: in their job file); "+
		"their logs and /readyz say which: %s", strings.Join(idle[:min(len(idle), 3)], ", "))
}

// inWay says which slots of the job have to end before this one may start.
func (t *teller) inWay() string {
	if t.noLock != nil {
		return fmt.Sprintf(", until its job's lock can be read: %v; cronce doctor --remove-unreadable removes it", t.noLock)
	}
	whole := t.story.Slot.Whole()
	for i, w := range t.lock.Waiting {
		if w.Slot != whole {
			continue
		}
		var holders []string
		for _, h := range t.lock.Holders {
			holders = append(holders, h.Slot.ID())
		}
		return fmt.Sprintf(", until its job's lock lets it in: held by %s, with %d waiting before it", cmp.Or(strings.Join(holders, ", "), "nobody"), i)
	}
	return ""
}

func (t *teller) alive(ev core.NodeEvent) bool {
	return ev.Node.State == core.NodeAlive && t.now.Sub(ev.Time) <= ev.Node.Lease
}

// health says how a node is.
func (t *teller) health(name string) string {
	for _, ev := range t.nodes {
		switch {
		case ev.Name != name:
		case ev.Err != nil:
			return "whose record cannot be read"
		case ev.Node.State == core.NodeFenced:
			return fmt.Sprintf("which %s declared dead at %s: another worker takes it over", ev.Node.FencedBy, ev.Node.FencedAt.UTC().Format(time.RFC3339))
		case ev.Node.State == core.NodeStopped:
			return "which has stopped: another worker takes it over"
		case !t.alive(ev):
			return fmt.Sprintf("which has been silent for %v: another worker may take it over", t.now.Sub(ev.Time).Round(time.Second))
		default:
			return "which is alive"
		}
	}
	return "of which nothing is known any more: another worker takes it over"
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
