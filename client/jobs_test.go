package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// A command waits some seconds for a silent broker. Computing the next slots of many jobs takes as
// long, and does not count as silence.
func TestListJobsIsNoSilenceOfTheBrokerWhileItComputes(t *testing.T) {
	t.Parallel()
	store, jobs, alive := memstore.New(), 50, 0
	for i := range jobs {
		d := plans.Definition{Job: job.Job{Name: fmt.Sprint("job", i), Schedule: "0 7 * * *"}, Nonce: "n"}
		if _, err := store.Jobs().Write(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
	c := client.Attach(attach.Parts{
		Jobs: store.Jobs(), Nodes: store.Nodes(), Ledger: store.Ledger(), Alive: func() { alive++ },
		Now: func(context.Context) (time.Time, error) { return now, nil },
	})
	if _, err := c.Jobs(t.Context(), client.JobFilter{}); err != nil {
		t.Fatal(err)
	}
	if alive < jobs {
		t.Errorf("said to be alive %d times for %d jobs", alive, jobs)
	}
}

func TestJobHasTheNewestRecordsInTheOrderOfTheirSlots(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.define(t, hourly("report"), "file", "web1")
	p.define(t, hourly("report-2"), "file", "web1")
	write := func(s job.Slot, published time.Time) {
		r := job.Record{Slot: s, State: job.Succeeded, Node: "web1", Nonce: s.ID(), Published: published}
		if _, err := p.store.Ledger().Write(t.Context(), r, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 { // the newest is written first, as after an outage
		write(job.NewSlot("report", now.Add(-time.Duration(i)*time.Hour)), now)
		write(job.NewSlot("report-2", now), now)
		p.store.Ledger().Forget(job.NewSlot("report-2", now).Key())
	}
	write(job.Slot{Job: "report", Token: "by hand"}, now.Add(-90*time.Minute))

	d, err := p.Job(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range d.Last {
		got = append(got, e.ID)
	}
	var want []string
	for i := 8; i >= 0; i-- {
		want = append(want, job.NewSlot("report", now.Add(-time.Duration(i)*time.Hour)).ID())
		if i == 2 {
			want = append(want, "report:@by hand")
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if len(d.Next) != 5 || !d.Next[0].Equal(now.Truncate(time.Hour).Add(time.Hour)) {
		t.Errorf("next %v", d.Next)
	}
}

func TestJobWithABrokenDefinitionSaysWhy(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.define(t, named("report", "61 * * * *"), "file", "web1")
	d, err := p.Job(t.Context(), "report")
	if err != nil || !errors.Is(d.Broken, job.ErrInvalid) || d.Job.Name != "report" || d.Revision != 1 || d.Written.IsZero() {
		t.Errorf("%+v, %v; want it to be shown as broken", d, err)
	}
	if _, err := p.Pause(t.Context(), "report"); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("to pause it: %v", err)
	}
	if _, err := p.Job(t.Context(), "nothing"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("of no job: %v", err)
	}
}

// deaf is a ledger that cannot be read as a whole.
type deaf struct{ attach.Ledger }

func (deaf) List(context.Context, kv.ListFilter) iter.Seq2[kv.LedgerEntry, error] {
	return func(yield func(kv.LedgerEntry, error) bool) {
		yield(kv.LedgerEntry{}, errors.New("the whole ledger was asked for"))
	}
}

func TestJobsHasTheLastSlotOfEachJobWithoutReadingTheLedger(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	minute := time.Now().UTC().Truncate(time.Minute)
	for _, j := range []job.Job{
		{Name: "plain", Schedule: "@every 60s"}, {Name: "stalled", Schedule: "@every 60s"}, {Name: "never", Schedule: "@every 60s"},
		{Name: "chained", After: []string{"plain"}}, {Name: "missed", Schedule: "@every 60s"}, {Name: "calls", Schedule: job.OnDemand},
	} {
		s.define(t, plans.Definition{Job: j})
	}
	past := func(name string, ago time.Duration) job.Slot { return job.NewSlot(name, minute.Add(-ago)) }
	for ago := 5 * time.Minute; ago > 0; ago -= time.Minute {
		s.record(t, past("plain", ago), job.Succeeded)
	}
	s.record(t, past("plain", 4*time.Hour), job.Failed) // written last, as a backfill is
	s.record(t, past("stalled", 3*time.Hour), job.Failed)
	s.record(t, past("chained", 2*time.Minute), job.Skipped)
	called := job.Record{Slot: job.Slot{Job: "calls", Token: "k"}, State: job.Failed, Node: "web1", Nonce: "k", Published: minute.Add(-time.Second)}
	if _, err := s.store.Ledger().Write(t.Context(), called, 0); err != nil {
		t.Fatal(err)
	}
	missed := past("missed", 2*time.Hour)
	missed.Range = true
	r := job.Record{Slot: missed, State: job.Missed, Node: "web1", Nonce: "r", Count: 60, Last: minute.Add(-time.Hour)}
	if _, err := s.store.Ledger().Write(t.Context(), r, 0); err != nil {
		t.Fatal(err)
	}
	parts := attach.Of(s.server.Conn(), s.store, attach.Options{Operator: "alice"})
	parts.Ledger = deaf{parts.Ledger}
	list, err := client.Attach(parts).Jobs(t.Context(), client.JobFilter{})
	if err != nil {
		t.Fatal(err)
	}
	type last struct {
		at    time.Time
		state job.State
	}
	want := map[string]last{
		"plain": {minute.Add(-time.Minute), job.Succeeded}, "stalled": {minute.Add(-3 * time.Hour), job.Failed}, "never": {},
		"chained": {minute.Add(-2 * time.Minute), job.Skipped}, "missed": {minute.Add(-time.Hour), job.Missed}, "calls": {called.Published, job.Failed},
	}
	if len(list.Jobs) != len(want) {
		t.Errorf("%d jobs", len(list.Jobs))
	}
	for _, j := range list.Jobs {
		if got := (last{j.Last, j.LastState}); got != want[j.Job] {
			t.Errorf("%s: %v, want %v", j.Job, got, want[j.Job])
		}
	}
}
