package kv_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/job"
)

func nodesWatched(t *testing.T, m anyStore) {
	ctx, cancel := context.WithCancel(limited(t))
	must[uint64](t)(m.Nodes.Write(ctx, kvtest.Node("old", "a"), 0))
	events, ended := make(chan exchange.NodeEvent, 100), make(chan error, 1)
	go func() { ended <- m.Nodes.Watch(ctx, func(e exchange.NodeEvent) { events <- e }) }()

	if e := next(t, ctx, events); e.Name != "old" || e.Node.State != exchange.NodeAlive || e.Err != nil {
		t.Fatalf("first event %+v", e)
	}
	if e := next(t, ctx, events); !e.Ready {
		t.Fatalf("second event %+v, want Ready", e)
	}
	one := must[uint64](t)(m.Nodes.Write(ctx, kvtest.Node("new", "b"), 0))
	if e := next(t, ctx, events); e.Name != "new" || e.Revision != one || e.Time.IsZero() {
		t.Fatalf("event %+v, want new at %d", e, one)
	}
	fenced := kvtest.Node("new", "c")
	fenced.State, fenced.FencedBy = exchange.NodeFenced, "old"
	two := must[uint64](t)(m.Nodes.Write(ctx, fenced, one))
	if e := next(t, ctx, events); e.Revision != two || e.Node.State != exchange.NodeFenced || e.Node.FencedBy != "old" {
		t.Fatalf("event %+v, want fenced at %d", e, two)
	}
	_, err := m.Nodes.Write(ctx, kvtest.Node("new", "late heartbeat"), one)
	wantError(t, err, job.ErrConflict)
	if got, err := m.Nodes.Read(ctx, "new"); err != nil || got.Revision != two || got.Node.State != exchange.NodeFenced {
		t.Fatalf("read %+v, %v", got, err)
	}
	if all := must[[]exchange.NodeEvent](t)(m.Nodes.List(ctx)); len(all) != 2 || all[0].Name != "old" || all[1].Name != "new" {
		t.Fatalf("list %+v", all)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatalf("the watch ended with %v, want nil", err)
	}
}

func jobsDeleted(t *testing.T, m anyStore) {
	ctx := limited(t)
	must[uint64](t)(m.Jobs.Write(ctx, kvtest.Definition("a", "1"), 0))
	rev := must[uint64](t)(m.Jobs.Write(ctx, kvtest.Definition("b", "2"), 0))
	for { // a list is a hint: the replica that answers may lag
		all := must[[]plans.Entry](t)(m.Jobs.List(ctx))
		if len(all) == 2 && all[0].Job.Name == "a" && all[1].Revision == rev && !all[1].Time.IsZero() {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("list %+v", all)
		case <-time.After(10 * time.Millisecond):
		}
	}
	wantError(t, m.Jobs.Delete(ctx, "b", rev-1), job.ErrConflict)
	if err := m.Jobs.Delete(ctx, "b", rev); err != nil {
		t.Fatal(err)
	}
	_, marker, err := m.Jobs.Read(ctx, "b")
	wantError(t, err, job.ErrNotFound)
	if marker <= rev {
		t.Fatalf("after the delete at revision %d the key has revision %d, want a later one", rev, marker)
	}
	_, err = m.Jobs.Write(ctx, kvtest.Definition("b", "3"), rev)
	wantError(t, err, job.ErrConflict)
	if again := must[uint64](t)(m.Jobs.Write(ctx, kvtest.Definition("b", "4"), marker)); again <= marker {
		t.Fatalf("created again at %d, want a later revision than that of the delete marker, %d", again, marker)
	}
	got, _, err := m.Jobs.Read(ctx, "b")
	if err != nil || got.Nonce != "4" || got.Job.Schedule != "0 7 * * *" {
		t.Fatalf("read %+v, %v", got, err)
	}
}

func jobsWatched(t *testing.T, m anyStore) {
	ctx, cancel := context.WithCancel(limited(t))
	events, ended := make(chan plans.RegistryEvent, 1000), make(chan error, 1)
	go func() {
		ended <- m.Jobs.Watch(ctx, func(e plans.RegistryEvent) {
			if !e.Settled { // Settled comes whenever nothing is pending
				events <- e
			}
		})
	}()
	if e := next(t, ctx, events); !e.Ready {
		t.Fatalf("first event of an empty registry %+v, want Ready", e)
	}
	const jobs = 20
	for i := range jobs {
		must[uint64](t)(m.Jobs.Write(ctx, kvtest.Definition(fmt.Sprintf("j%02d", i), "1"), 0))
	}
	var last uint64
	for i := range jobs {
		e := next(t, ctx, events)
		if e.Name != fmt.Sprintf("j%02d", i) || e.Revision <= last || e.Entry.Job.Name != e.Name || e.Err != nil {
			t.Fatalf("event %d: %+v after revision %d", i, e, last)
		}
		last = e.Revision
	}
	if err := m.Jobs.Delete(ctx, "j19", last); err != nil {
		t.Fatal(err)
	}
	if e := next(t, ctx, events); !e.Deleted || e.Name != "j19" || e.Revision <= last {
		t.Fatalf("event %+v, want the removal of j19", e)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatalf("the watch ended with %v, want nil", err)
	}
}

func jobBroken(t *testing.T, m anyStore) {
	ctx, cancel := context.WithCancel(limited(t))
	broken := kvtest.Definition("broken", "1")
	broken.Job.Schedule = "61 * * * *"
	rev := must[uint64](t)(m.Jobs.Write(ctx, broken, 0))
	must[uint64](t)(m.Jobs.Write(ctx, kvtest.Definition("good", "2"), 0))
	check := func(how string, err error) {
		t.Helper()
		var e *plans.EntryError
		if !errors.As(err, &e) || e.Name != "broken" || e.Revision != rev || e.Time.IsZero() || !errors.Is(err, job.ErrInvalid) {
			t.Fatalf("%s: %v, want an error about the entry", how, err)
		}
	}
	_, at, err := m.Jobs.Read(ctx, "broken")
	check("read", err)
	if at != rev {
		t.Fatalf("read at revision %d, want %d: it has to be replaced there", at, rev)
	}
	entries, err := m.Jobs.List(ctx)
	for len(entries) != 1 && ctx.Err() == nil { // a list is a hint: the replica that answers may lag
		entries, err = m.Jobs.List(ctx)
	}
	check("list", err)
	if len(entries) != 1 || entries[0].Job.Name != "good" {
		t.Fatalf("list %+v, want the good one", entries)
	}
	events, ended := make(chan plans.RegistryEvent, 10), make(chan error, 1)
	go func() { ended <- m.Jobs.Watch(ctx, func(e plans.RegistryEvent) { events <- e }) }()
	check("watch", next(t, ctx, events).Err)
	if e := next(t, ctx, events); e.Name != "good" || e.Err != nil {
		t.Fatalf("second event %+v, want the good job", e)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
