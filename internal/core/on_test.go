package core

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

var (
	eventTime = time.Date(2026, 11, 21, 7, 0, 0, 500, time.UTC)
	charge    = job.Job{Name: "charge", On: job.On{Stream: "ORDERS", Subject: "orders.paid"}, Overlap: job.OverlapAllow}
)

func event(edit func(*StreamEvent)) StreamEvent {
	e := StreamEvent{Stream: "ORDERS", Created: eventTime.Add(-time.Hour), Sequence: 17, Stored: eventTime}
	if edit != nil {
		edit(&e)
	}
	return e
}

func TestRunOfAMessageIsNamedByItsID(t *testing.T) {
	t.Parallel()
	e := plans.Entry{Revision: 9, Definition: plans.Definition{Job: charge}}
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "17", "o/r2", "o#1of2", " o ", "a\r\nb", strings.Repeat("x", 129), "\xff"})).Draw(t, "id")
		size := rapid.IntRange(0, 2*job.MaxPayload).Draw(t, "size")
		for _, m := range EventRun(e, event(func(e *StreamEvent) { e.ID, e.Size = id, size })) {
			if err := job.ValidateToken(m.Slot.Token); err != nil {
				t.Fatalf("%q: %v", id, err)
			}
			if trimmed := strings.TrimSpace(id); job.ValidateToken(trimmed) == nil && m.Slot.Token != trimmed {
				t.Fatalf("%q gives %q", id, m.Slot.Token)
			}
			if (m.Refused != "") != (size > job.MaxPayload) || m.Slot.Shards != 0 {
				t.Fatalf("%d bytes: %+v", size, m)
			}
			if back, err := ParseMessage(m.Header()); err != nil || back != m {
				t.Fatalf("%v is read as %+v, %v", m.Header(), back, err)
			}
		}
	})
	if a, b := (StreamEvent{ID: "x\x00"}).Token(), (StreamEvent{ID: "x\x01"}).Token(); a == b {
		t.Error("two IDs give one token")
	}
	if got := (StreamEvent{ID: "a\tb"}).Token(); got != "sha256-894891f8b78a9945b0aa07e70d5f71f10b1f1990af127de561cc0ac36024c188" {
		t.Errorf("got %s", got)
	}
}

func TestRunOfAMessageWithoutAnIDIsNamedByStreamCreationAndSequence(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]StreamEvent{
		"ORDERS-1795240800000000500-17": event(nil),
		"BILLS-1795240800000000500-17":  event(func(e *StreamEvent) { e.Stream = "BILLS" }),
		"ORDERS-1795240800000000501-17": event(func(e *StreamEvent) { e.Created = e.Created.Add(1) }),
		"ORDERS-1795240800000000500-18": event(func(e *StreamEvent) { e.Sequence++ }),
		"17":                            event(func(e *StreamEvent) { e.SequenceOnly = true }),
		"sha256-8d672af3a4ac4d9d24eeb5a0f98aeae45cd2aa533be0c9d77ee095d46dce0e19": event(func(e *StreamEvent) { e.Stream = strings.Repeat("x", 255) }),
	} {
		if got := e.Token(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// If a consumer is removed and created again, it delivers old messages again. Their slots are
// published now, but their age is that of the messages.
func TestAgeOfAnEventsSlotIsTheEventsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message Message
		age     time.Duration // of the event
		action  Action
		state   job.State
	}{
		"young":                        {Message{Event: true}, time.Hour, Start, job.Running},
		"at the horizon":               {Message{Event: true}, 24 * time.Hour, Start, job.Running},
		"old":                          {Message{Event: true}, 24*time.Hour + 1, End, job.Expired},
		"triggered for a time gone by": {Message{}, 25 * time.Hour, Start, job.Running},
	} {
		now := eventTime.Add(c.age)
		m := c.message
		m.Slot, m.JobRevision, m.Due = job.Slot{Job: "charge", Token: "x"}, 9, eventTime
		entry := plans.Entry{Revision: 9, Time: eventTime.Add(-time.Hour), Definition: plans.Definition{Job: charge}}
		s := Decide(Delivery{Message: m, Published: now}, View{Now: now, Self: "A", Horizon: 24 * time.Hour, Handles: true, Entry: &entry})
		if s.Action != c.action || s.Record.State != c.state {
			t.Errorf("%s: action %d, %s (%s)", name, s.Action, s.Record.State, s.Record.Error)
		}
	}
	// If the message's time is in the future, the slot still expires.
	m := Message{Slot: job.Slot{Job: "charge", Token: "x"}, JobRevision: 9, Due: eventTime.AddDate(1, 0, 0), Event: true}
	s := Decide(Delivery{Message: m, Published: eventTime}, View{Now: eventTime.Add(25 * time.Hour), Self: "A", Horizon: 24 * time.Hour, Handles: true})
	if s.Action != End || s.Record.State != job.Expired {
		t.Errorf("from the future: action %d, %s", s.Action, s.Record.State)
	}
}

// If the sweep or an operator offers a slot again, its age does not change. The message of an
// operator or of an older sweep does not say that an event started the slot.
func TestAgeOfASlotThatIsOfferedAgainIsItsRecords(t *testing.T) {
	t.Parallel()
	const horizon = 24 * time.Hour
	for name, c := range map[string]struct {
		event     bool
		published time.Duration // of the first message, after the event
		want      time.Duration // the age at which the slot ends, after the event
	}{
		"an event's":                  {true, 0, horizon},
		"an event's, published late":  {true, 20 * time.Hour, horizon},
		"a triggered run's":           {false, 0, horizon},
		"a run's triggered for later": {false, 20 * time.Hour, 20*time.Hour + horizon},
	} {
		m := Message{Slot: job.Slot{Job: "charge", Token: "x"}, JobRevision: 9, Due: eventTime, Event: c.event}
		entry := plans.Entry{Revision: 9, Time: eventTime.Add(-time.Hour), Definition: plans.Definition{Job: charge}}
		view := View{Now: eventTime.Add(c.published), Self: "A", Horizon: horizon, Handles: true, Entry: &entry}
		claim := Decide(Delivery{Message: m, Published: eventTime.Add(c.published), Count: 1}, view)
		if claim.Action != Start {
			t.Fatalf("%s: action %d", name, claim.Action)
		}
		for age, state := range map[time.Duration]job.State{c.want: job.Running, c.want + 1: job.Failed} {
			view.Now = eventTime.Add(age)
			last := Complete(claim.Record, 1, eventTime.Add(c.published), horizon, Result{Err: errors.New("failed")})
			view.Record, view.Revision = &last, 2
			m.Event, m.Offer = false, 2
			if s := Decide(Delivery{Message: m, Published: view.Now, Count: 1}, view); s.Record.State != state {
				t.Errorf("%s, offered again at %v: %s (%s), want %s", name, age, s.Record.State, s.Record.Error, state)
			}
		}
		// No retry is planned beyond the horizon.
		end := Complete(claim.Record, 1, eventTime.Add(c.want), horizon, Result{Err: errors.New("failed"), Backoff: 1})
		if end.State != job.Failed {
			t.Errorf("%s: at the horizon the next attempt is due: %s", name, end.State)
		}
	}
}

// If a message is delivered again after an edit of the job, it still names the same slots.
func TestRunOfAMessageIsSplitAsThePlanOfItsTimeSaid(t *testing.T) {
	t.Parallel()
	split := charge
	split.Shards = 2
	edit := eventTime.Add(time.Minute)
	for name, c := range map[string]struct {
		past, now job.Job
		stored    time.Time
		shards    int
	}{
		"before the edit to shards":   {charge, split, eventTime, 1},
		"at the edit to shards":       {charge, split, edit, 1},
		"after the edit to shards":    {charge, split, edit.Add(1), 2},
		"before the edit from shards": {split, charge, eventTime, 2},
		"before the job":              {split, charge, eventTime.Add(-time.Hour), 2}, // from a work queue
	} {
		e := plans.Entry{Revision: 9, Time: edit, Definition: plans.Definition{Job: c.now, Past: []plans.PastPlan{{Plan: c.past.Plan(), From: eventTime.Add(-time.Minute), To: edit}}}}
		messages := EventRun(e, event(func(e *StreamEvent) { e.Stored = c.stored }))
		if len(messages) != c.shards {
			t.Errorf("%s: %d messages, want %d", name, len(messages), c.shards)
		}
		for _, m := range messages {
			s := Decide(Delivery{Message: m, Published: edit}, View{Now: edit.Add(time.Second), Self: "A", Horizon: 24 * time.Hour, Handles: true, Entry: &e})
			if want := map[bool]Action{true: ReadWhole, false: Start}[c.shards > 1]; s.Action != want {
				t.Errorf("%s: a worker does %d with %s (%s), want %d", name, s.Action, m.Slot, s.Reason, want)
			}
		}
	}
}

func TestOnPlansAreThoseByWhichMessagesStartTheJob(t *testing.T) {
	t.Parallel()
	at := eventTime
	past := []plans.PastPlan{
		{Plan: job.Job{Name: "charge", On: job.On{Stream: "BILLS", Subject: "a"}}.Plan(), From: at.Add(-3 * time.Hour), To: at.Add(-2 * time.Hour)},
		{Plan: job.Job{Name: "charge", Schedule: "@hourly"}.Plan(), From: at.Add(-2 * time.Hour), To: at.Add(-time.Hour)},
		{Plan: job.Job{Name: "charge", On: job.On{Stream: "ORDERS", Subject: "b"}}.Plan(), From: at.Add(-time.Hour), To: at},
	}
	plans := plans.Entry{Time: at, Definition: plans.Definition{Job: charge, Past: past}}.OnPlans()
	if len(plans) != 3 || plans[0].Plan.On.Stream != "BILLS" || plans[1].Plan.On.Subject != "b" || plans[2].Plan.On != charge.On || !plans[2].From.Equal(at) || !plans[2].To.IsZero() {
		t.Errorf("got %+v", plans)
	}
}

func TestPlanIsDrainedWhenAllThatIsLeftIsBeyondItsEnd(t *testing.T) {
	t.Parallel()
	seen := func(sequences ...uint64) map[uint64]bool {
		m := map[uint64]bool{}
		for _, s := range sequences {
			m[s] = true
		}
		return m
	}
	for name, c := range map[string]struct {
		state OnState
		after AfterEnd
		want  bool
	}{
		"nothing left":                          {OnState{}, AfterEnd{}, true},
		"some are pending":                      {OnState{Pending: 1}, AfterEnd{}, false},
		"some are unacked":                      {OnState{Unacked: 1}, AfterEnd{}, false},
		"what is unacked seems to be after it":  {OnState{Pending: 5, Unacked: 2}, AfterEnd{Seen: seen(8, 9)}, false},
		"one unacked is before the end":         {OnState{Pending: 5, Unacked: 3}, AfterEnd{Seen: seen(8, 9)}, false},
		"all before the first beyond are acked": {OnState{Pending: 5, Unacked: 70, AckedDelivery: 7}, AfterEnd{Seen: seen(19), First: 8}, true},
		"all before a beyond one are acked":     {OnState{Pending: 5, Unacked: 70, AckedSequence: 18}, AfterEnd{Seen: seen(19, 30)}, true},
		"one before each beyond one is not":     {OnState{Pending: 5, Unacked: 70, AckedSequence: 17}, AfterEnd{Seen: seen(19, 30)}, false},
		"one before the first beyond is not":    {OnState{Pending: 5, Unacked: 70, AckedDelivery: 6}, AfterEnd{Seen: seen(19), First: 8}, false},
	} {
		if got := c.state.IsDrained(c.after); got != c.want {
			t.Errorf("%s: drained %t", name, got)
		}
	}
}
