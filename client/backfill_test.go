package client_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// twoPlans defines the job report: every hour until noon, which is four hours ago, and then
// every half hour. It returns noon and the definition's revision.
func (s *site) twoPlans(t *testing.T) (noon time.Time, revision uint64) {
	t.Helper()
	noon = time.Now().UTC().Truncate(time.Hour).Add(-4 * time.Hour)
	revision = s.define(t, plans.Definition{
		Job: job.Job{Name: "report", Schedule: "*/30 * * * *", Queue: "slow", Payload: []byte(`{"n":1}`)}, Since: noon,
		Past: []plans.PastPlan{{Plan: job.Plan{Schedule: "0 * * * *"}, From: noon.Add(-100 * time.Hour)}},
	})
	return noon, revision
}

// filling is a call of Backfill.
type filling struct {
	Job      string
	From, To time.Time
	Rate     int
	Clip     bool
}

func (f filling) options() client.BackfillOptions {
	return client.BackfillOptions{From: f.From, To: f.To, Rate: f.Rate, Clip: f.Clip}
}

func (s *site) fill(t *testing.T, f filling) (client.Backfilled, error) {
	return s.Backfill(t.Context(), f.Job, f.options(), nil)
}

func same(t *testing.T, got, want client.Backfilled) {
	t.Helper()
	if !got.From.Equal(want.From) || !got.To.Equal(want.To) || got.Slots != want.Slots || got.Waiting != want.Waiting || got.TooOld != want.TooOld ||
		got.Published != want.Published || got.Folded != want.Folded || !maps.Equal(got.Recorded, want.Recorded) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestBackfillPublishesWhatThePlansHadAndNothingKnows(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	noon, revision := s.twoPlans(t)
	from, to := noon.Add(-2*time.Hour), noon.Add(2*time.Hour)
	// The old plan has 10, 11 and 12, the new one 12:30, 13 and 13:30. The range ends before
	// 14:00.
	s.record(t, job.NewSlot("report", noon.Add(-time.Hour)), job.Missed)
	s.record(t, job.NewSlot("report", noon.Add(-30*time.Minute)), job.Cancelled) // in no plan
	s.record(t, job.Slot{Job: "report", At: noon.Add(-2 * time.Hour), Range: true}, job.Missed)
	if _, err := s.store.Slots().Publish(t.Context(), "slow", core.Message{Slot: job.NewSlot("report", noon)}, nil); err != nil {
		t.Fatal(err)
	}

	order := filling{Job: "report", From: from, To: to, Rate: 1000}
	var told []int
	got, err := s.Backfill(t.Context(), order.Job, order.options(), func(b client.Backfilled) { told = append(told, b.Done()) })
	if err != nil {
		t.Fatal(err)
	}
	want := client.Backfilled{From: from, To: to, Slots: 6, Recorded: map[job.State]int{job.Missed: 1}, Waiting: 1, Published: 4}
	same(t, got, want)
	if len(told) != 5 || told[0] != 2 || told[4] != 6 {
		t.Errorf("told %v", told)
	}
	all := s.waiting(t)[1:]
	slices.SortFunc(all, func(a, b stream.WaitingSlot) int { return a.Slot.At.Compare(b.Slot.At) }) // messages are published concurrently
	for i, minutes := range []time.Duration{-120, 30, 60, 90} {
		at := noon.Add(minutes * time.Minute)
		m := core.Message{Slot: job.NewSlot("report", at), JobRevision: revision, Node: "alice@laptop", Due: at, Backfill: true}
		if i >= len(all) || all[i].Message != m || all[i].Queue != "slow" {
			t.Fatalf("published %+v, want %+v as number %d", all, m, i)
		}
	}

	again, err := s.Backfill(t.Context(), order.Job, order.options(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want.Waiting, want.Published = 5, 0
	same(t, again, want)
	if n := len(s.waiting(t)); n != 5 {
		t.Errorf("%d messages, want 5", n)
	}
}

func TestBackfillNeedsOnlyThePlansThatWereInForceInItsRange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	noon := time.Now().UTC().Truncate(time.Hour).Add(-4 * time.Hour)
	s.define(t, plans.Definition{
		Job: job.Job{Name: "report", Schedule: "*/30 * * * *"}, Since: noon,
		Past: []plans.PastPlan{{Plan: job.Plan{Schedule: "0 0 32 * *"}, From: noon.Add(-100 * time.Hour)}},
	})
	f := filling{Job: "report", From: noon.Add(time.Second), To: noon.Add(61 * time.Minute), Rate: 1000}
	if got, err := s.fill(t, f); err != nil || got.Published != 2 {
		t.Errorf("%+v, %v, want 2 slots", got, err)
	}
	f.From = noon
	if got, err := s.fill(t, f); !errors.Is(err, job.ErrInvalid) || got.Published != 0 {
		t.Errorf("with an instant of the broken plan: %+v, %v", got, err)
	}
}

func TestBackfillOfWhatIsTooOldIsRefusedOrClipped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	noon, _ := s.twoPlans(t)
	from, to := noon.Add(-30*time.Hour), noon
	order := filling{Job: "report", From: from, To: to, Rate: 1000}
	_, err := s.Backfill(t.Context(), order.Job, order.options(), nil)
	var old *client.TooOldError
	// The horizon of 24 h ends between 4 and 5 hours before noon yesterday.
	if !errors.As(err, &old) || !errors.Is(err, job.ErrConflict) || old.Slots != 30 || old.TooOld != 11 && old.TooOld != 10 || !strings.Contains(err.Error(), "horizon of 24h0m0s") {
		t.Fatalf("got %v, want 10 or 11 of 30 slots too old", err)
	}
	if all := s.waiting(t); len(all) > 0 {
		t.Fatalf("published %+v", all)
	}
	order.Clip = true
	got, err := s.Backfill(t.Context(), order.Job, order.options(), nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, client.Backfilled{From: from, To: to, Slots: 30, TooOld: got.TooOld, Published: 30 - got.TooOld})
	if all := s.waiting(t); len(all) != got.Published || time.Since(all[0].Slot.At) > 24*time.Hour {
		t.Errorf("published %+v", all)
	}
}

// A Ctrl-C and a full stream stop a backfill. The same backfill then does the rest, and no
// slot runs twice.
func TestBackfillGoesOnAfterItWasStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	end := time.Now().UTC().Truncate(time.Second)
	from := end.Add(-200 * time.Second)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@every 1s"}, Since: from.Add(-time.Hour)})
	order := filling{Job: "report", From: from, To: end, Rate: 1000}

	ctx, stop := context.WithCancel(t.Context())
	first, err := s.Backfill(ctx, order.Job, order.options(), func(b client.Backfilled) {
		if b.Published >= 50 {
			stop()
		}
	})
	if !errors.Is(err, context.Canceled) && !errors.Is(err, job.ErrUnknown) || first.Published < 50 || first.Published == 200 {
		t.Fatalf("got %+v, %v; want an end in the middle", first, err)
	}

	js := s.server.JetStream()
	stream, err := js.Stream(t.Context(), "cronce_slots")
	if err != nil {
		t.Fatal(err)
	}
	limited := stream.CachedInfo().Config
	limited.MaxMsgs = 120
	if _, err := js.UpdateStream(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	var api *jetstream.APIError
	second, err := s.Backfill(t.Context(), order.Job, order.options(), nil)
	if !errors.As(err, &api) || second.Published == 0 || second.Done() >= 200 {
		t.Fatalf("got %+v, %v; want a full stream", second, err)
	}
	limited.MaxMsgs = -1
	if _, err := js.UpdateStream(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	third, err := s.Backfill(t.Context(), order.Job, order.options(), nil)
	if err != nil || third.Done() != 200 || third.Slots != 200 {
		t.Fatalf("got %+v, %v", third, err)
	}
	seen := map[string]int{}
	for _, w := range s.waiting(t) {
		seen[w.Slot.ID()]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s waits %d times", id, n)
		}
	}
	if len(seen) != 200 {
		t.Errorf("%d slots wait, want 200", len(seen))
	}
}

func TestBackfillKeepsItsRate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	end := time.Now().UTC().Truncate(time.Second)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@every 1s"}, Since: end.Add(-time.Hour)})
	began := time.Now()
	got, err := s.fill(t, filling{Job: "report", From: end.Add(-30 * time.Second), To: end, Rate: 50})
	// The first message comes after one tick, the last after 30.
	if took := time.Since(began); err != nil || got.Published != 30 || took < 580*time.Millisecond {
		t.Errorf("%+v, %v: 30 slots took %v, want 0.6s at 50/s", got, err, took)
	}
}

func TestBackfillRefusesInvalidOrders(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	noon, _ := s.twoPlans(t)
	soon := time.Now().Add(time.Hour)
	for what, b := range map[string]filling{
		"job":                     {From: noon},
		"no beginning":            {Job: "report"},
		"not after":               {Job: "report", From: noon, To: noon},
		"rate":                    {Job: "report", From: noon, Rate: client.MaxRate + 1},
		"its end":                 {Job: "report", From: noon, To: soon},
		"beginning":               {Job: "report", From: soon},
		"rate -1/s: want 1/s to ": {Job: "report", From: noon, Rate: -1},
	} {
		if _, err := s.Backfill(t.Context(), b.Job, b.options(), nil); !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("want an error about %s, got %v", what, err)
		}
	}
	s.define(t, plans.Definition{Job: job.Job{Name: "import", Schedule: job.OnDemand}})
	if _, err := s.fill(t, filling{Job: "import", From: noon}); !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), "it starts when triggered") {
		t.Errorf("a job without a schedule: %v", err)
	}
	if _, err := s.fill(t, filling{Job: "missing", From: noon}); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("got %v, want not found", err)
	}
	// There are no slots before the first plan.
	got, err := s.fill(t, filling{Job: "report", From: noon.Add(-300 * time.Hour), To: noon.Add(-200 * time.Hour)})
	if err != nil || got.Slots != 0 {
		t.Errorf("got %+v, %v; want nothing", got, err)
	}
}

// A backfill publishes all shards of a slot by the plan that was in force, even if some of
// them were published before.
func TestBackfillPublishesAllShards(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	noon := time.Now().UTC().Truncate(time.Hour).Add(-4 * time.Hour)
	at := func(hours int) job.Slot { return job.NewSlot("report", noon.Add(time.Duration(hours)*time.Hour)) }
	s.define(t, plans.Definition{
		Job: job.Job{Name: "report", Schedule: "0 * * * *", Shards: 3}, Since: noon,
		Past: []plans.PastPlan{{Plan: job.Plan{Schedule: "0 * * * *", Shards: 2}, From: noon.Add(-100 * time.Hour)}},
	})
	missed := at(0) // the first of a range, of which none will run
	missed.Range = true
	for _, slot := range []job.Slot{at(1).WithShard(1, 3), at(2).WithShard(1, 3), at(2).WithShard(2, 3), at(2).WithShard(3, 3), missed} {
		if _, err := s.store.Slots().Publish(t.Context(), "default", core.Message{Slot: slot}, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.record(t, at(-1), job.Succeeded) // the whole slot
	s.record(t, at(-1).WithShard(1, 2), job.Succeeded)
	order := filling{Job: "report", From: at(-2).At, To: at(3).At, Rate: 1000}
	got, err := s.Backfill(t.Context(), order.Job, order.options(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := client.Backfilled{From: order.From, To: order.To, Slots: 5, Recorded: map[job.State]int{job.Succeeded: 1}, Waiting: 1, Published: 3}
	same(t, got, want)
	seen := map[string]int{}
	for _, w := range s.waiting(t) {
		seen[w.Slot.ID()]++
	}
	for _, slot := range []job.Slot{at(-2).WithShard(1, 2), at(-2).WithShard(2, 2), at(0).WithShard(2, 2), at(1).WithShard(1, 3), at(1).WithShard(2, 3), at(1).WithShard(3, 3)} {
		if seen[slot.ID()] != 1 {
			t.Errorf("%s waits %d times", slot, seen[slot.ID()])
		}
	}
	if len(seen) != 11 {
		t.Errorf("%d messages: %v; want 2, 2, 3 and 3, and the range", len(seen), seen)
	}
}
