package control_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/job"
)

func TestShowTellsTheNewestRecordsInTheOrderOfTheirSlots(t *testing.T) {
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

func TestShowOfABrokenDefinitionSaysWhy(t *testing.T) {
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
