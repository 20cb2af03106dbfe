package consumer_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

var target = &job.Alert{NATS: &job.AlertNATS{Subject: "alerts"}}

func (b *bench) alerted() []string { return slices.Sorted(maps.Keys(b.alerts)) }

func TestAnAlertIsStoredForEachOutcomeThatWantsOne(t *testing.T) {
	t.Parallel()
	fails := func(context.Context, job.Run) error { return job.Permanent(errors.New("no")) }
	for name, c := range map[string]struct {
		job     job.Job
		handler job.Handler
		edit    func(*core.Message)
		want    job.State // empty: no alert
	}{
		"failed":                     {job.Job{OnFailure: target}, fails, nil, job.Failed},
		"failed, only missed wanted": {job.Job{OnMissed: target}, fails, nil, ""},
		"succeeded":                  {job.Job{OnFailure: target, OnMissed: target}, succeed, nil, ""},
		"too old":                    {job.Job{OnFailure: target}, succeed, func(m *core.Message) { m.Slot.At = m.Slot.At.Add(-2 * horizon) }, job.Expired},
		"past its deadline":          {job.Job{OnFailure: target, Deadline: time.Minute}, nil, func(m *core.Message) { m.Slot.At, m.Due = m.Slot.At.Add(-time.Hour), m.Due.Add(-time.Hour) }, job.Expired},
		"missed":                     {job.Job{OnMissed: target}, nil, func(m *core.Message) { m.Missed, m.Slot.At = 1, m.Slot.At.Add(-plans.LateAfter); m.Due = m.Slot.At }, job.Missed},
		"missed, only failed wanted": {job.Job{OnFailure: target}, nil, func(m *core.Message) { m.Missed, m.Slot.At = 1, m.Slot.At.Add(-plans.LateAfter); m.Due = m.Slot.At }, ""},
		"a range of missed ones": {job.Job{OnMissed: target}, nil, func(m *core.Message) {
			m.Slot.Range, m.Slot.At = true, m.Slot.At.Add(-2*time.Hour)
			m.Missed, m.MissedLast = 12, m.Slot.At.Add(time.Hour)
		}, job.Missed},
		"cancelled: deleted": {job.Job{OnFailure: target, OnMissed: target}, nil, func(m *core.Message) { m.Slot.Job = "gone" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				c.job.Name = "report"
				b.handle(c.job, c.handler)
				stop := b.run()
				m := core.Message{Slot: job.NewSlot("report", time.Now()), JobRevision: 1, Due: time.Now()}
				if c.edit != nil {
					c.edit(&m)
				}
				b.queue.add(m)
				b.queue.add(m) // the alert is stored again, under the same ID
				b.settled(2)
				_ = stop()
				if c.want == "" {
					if got := b.alerted(); len(got) > 0 {
						t.Errorf("published %v", got)
					}
					return
				}
				r, revision, err := b.ledger.Read(t.Context(), m.Slot)
				if err != nil {
					t.Fatal(err)
				}
				id := exchange.AlertID(r, revision, r.State)
				e := b.alerts[id]
				if len(b.alerts) != 1 || b.copies != 1 || e.Kind != job.EventAlert || e.Alert != c.want || r.State != c.want ||
					e.ID != m.Slot.ID() || e.Job != "report" || e.Node != "A" || e.Error != r.Error || e.Count != m.Missed && m.Slot.Range {
					t.Errorf("published %+v under %v and %d copies, want one of %s", e, b.alerted(), b.copies, id)
				}
			})
		})
	}
}

func TestNoAckBeforeTheAlertIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report", OnFailure: target}, func(context.Context, job.Run) error { return job.Permanent(errors.New("no")) })
		b.refuse = errors.New("the stream is full")
		stop := b.run()
		slot := b.publish("report")
		v := b.settled(2)
		_ = stop()
		if v[0] != "later(2s) "+slot.ID() || v[1] != "ack "+slot.ID() || len(b.alerts) != 1 {
			t.Errorf("verdicts %q, alerts %v", v, b.alerted())
		}
	})
}

// A definition that cannot be read now may want the alert: the sender looks it up later.
func TestAnAlertIsStoredIfTheDefinitionCannotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Registry = brokenRegistry{}
		stop := b.run()
		b.queue.add(core.Message{Slot: job.NewSlot("report", time.Now().Add(-plans.LateAfter)), Missed: 1})
		b.settled(1)
		_ = stop()
		if got := b.alerted(); len(got) != 1 {
			t.Errorf("published %v, want one", got)
		}
	})
}

// The alert is about the slot, not about its shards.
func TestASplitSlotHasOneAlert(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report", Shards: 3, OnFailure: target}, func(_ context.Context, run job.Run) error {
			return job.Permanent(errors.New("no"))
		})
		stop := b.run()
		slot := b.split("report", 3)
		b.settled(3)
		_ = stop()
		if len(b.alerts) != 1 || b.alerts[b.alerted()[0]].ID != slot.ID() {
			t.Errorf("published %v, want %s once", b.alerted(), slot)
		}
	})
}
