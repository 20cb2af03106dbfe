package control_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

// A command waits some seconds for a silent broker. Computing the next slots of many jobs
// takes as long, and is no silence.
func TestListJobsIsNoSilenceOfTheBrokerWhileItComputes(t *testing.T) {
	t.Parallel()
	store, jobs, alive := memstore.New(), 50, 0
	for i := range jobs {
		d := core.Definition{Job: job.Job{Name: fmt.Sprint("job", i), Schedule: "0 7 * * *"}, Nonce: "n"}
		if _, err := store.Jobs().Write(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
	c := control.New(control.Config{
		Jobs: store.Jobs(), Nodes: store.Nodes(), Ledger: store.Ledger(), Alive: func() { alive++ },
		Now: func(context.Context) (time.Time, error) { return now, nil },
	})
	if _, err := c.ListJobs(t.Context(), "", time.Time{}); err != nil {
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
		got = append(got, e.Slot.ID())
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
	if err != nil || !errors.Is(d.Broken, job.ErrInvalid) || d.Job.Name != "report" || d.Revision != 1 || d.Time.IsZero() {
		t.Errorf("%+v, %v; want it to be shown as broken", d, err)
	}
	if _, _, err := p.Pause(t.Context(), "report"); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("to pause it: %v", err)
	}
	if _, err := p.Job(t.Context(), "nothing"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("of no job: %v", err)
	}
}
