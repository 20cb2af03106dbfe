package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

func TestPauseAndResumeAreOneWriteEach(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.define(t, hourly("report"), "file", "web1")
	for _, want := range []bool{true, false} {
		e, err := p.Pause(t.Context(), "report")
		if err != nil || e.Changed != want || !e.Paused || e.Owner != "file" || e.Revision != 2 {
			t.Errorf("pause: %+v, %v; want changed %v at revision 2", e, err, want)
		}
	}
	for _, want := range []bool{true, false} {
		e, err := p.Resume(t.Context(), "report", client.ResumeOptions{})
		if err != nil || e.Changed != want || e.Paused || e.Revision != 3 {
			t.Errorf("resume: %+v, %v; want changed %v at revision 3", e, err, want)
		}
	}
	e, _, err := p.store.Jobs().Read(t.Context(), "report")
	if err != nil || len(e.Pauses) != 1 || e.Pauses[0].To.IsZero() {
		t.Errorf("stored is %+v, %v; want a pause with both ends", e.Pauses, err)
	}
}

// paused stores a job whose pause covers 412 slots.
func (p *place) paused(t *testing.T, c job.CatchUp) {
	t.Helper()
	_, err := p.store.Jobs().Write(t.Context(), plans.Definition{
		Job:   job.Job{Name: "report", Schedule: "* * * * *", CatchUp: c},
		Since: now.AddDate(0, -1, 0), Paused: true, Pauses: []plans.Window{{From: now.Add(-412 * time.Minute)}},
		Owner: "file", Node: "web1", Nonce: "n",
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
}

func TestResumeSaysFirstWhatCatchUpWouldRun(t *testing.T) {
	t.Parallel()
	for policy, runs := range map[job.CatchUp]int{
		{}: 1, {Policy: job.CatchUpNone}: 0, {Policy: job.CatchUpAll}: 100, {Policy: job.CatchUpAll, Max: 1000}: 412,
		{Policy: job.CatchUpAll, Max: 1000, Within: time.Hour}: 60,
	} {
		t.Run(fmt.Sprintf("%+v", policy), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "alice@a")
			p.paused(t, policy)
			would, err := p.Resume(t.Context(), "report", client.ResumeOptions{DryRun: true})
			if err != nil || would.Missed != 412 || would.Runs != runs || !would.Since.Equal(now.Add(-412*time.Minute)) {
				t.Errorf("%d missed, %d will run since %v, %v; want 412 and %d", would.Missed, would.Runs, would.Since, err, runs)
			}
		})
	}
}

// After an edit the preview may no longer hold.
func TestResumeAfterAnEditIsAConflict(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.paused(t, job.CatchUp{})
	would, err := p.Resume(t.Context(), "report", client.ResumeOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	p.as("bob@b").apply(t, client.ApplyOptions{}, job.Job{Name: "report", Schedule: "* * * * *", CatchUp: job.CatchUp{Policy: job.CatchUpAll}})
	var conflict *client.ConflictError
	if r, err := p.Resume(t.Context(), "report", client.ResumeOptions{Seen: &would.Revision}); r.Changed || !errors.As(err, &conflict) || conflict.By != "bob@b" {
		t.Errorf("%v, %v; want a conflict with bob", r.Changed, err)
	}
	if e, _, err := p.store.Jobs().Read(t.Context(), "report"); err != nil || !e.Paused {
		t.Errorf("stored is %+v, %v; want it paused still", e, err)
	}
}

func TestApplyLeavesAPauseAlone(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.paused(t, job.CatchUp{})
	if d := p.apply(t, client.ApplyOptions{}, hourly("report"))[0]; !d.Paused {
		t.Errorf("%+v, want it paused still", d)
	}
	p.apply(t, client.ApplyOptions{}, named("report", "@daily"))
	d, err := p.Job(t.Context(), "report")
	if err != nil || !d.Paused || d.Next != nil || !d.PausedSince().Equal(now.Add(-412*time.Minute)) {
		t.Errorf("%+v, %v; want it paused since it was", d.Definition, err)
	}
}
