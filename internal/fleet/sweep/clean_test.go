package sweep_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/job"
)

func TestWhatJobsAndNodesThatAreGoneLeaveIsRemoved(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	check := func(_ uint64, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ended, runs := job.NewSlot("ended", hour), job.NewSlot("runs", hour)
	s.record(job.Record{Slot: ended, State: job.Succeeded})
	s.record(job.Record{Slot: runs, State: job.Running, Node: "alive"})
	for name, holders := range map[string][]core.LockSlot{
		"report": nil, "empty": nil, "forgotten": {{Slot: job.NewSlot("forgotten", hour)}}, "ended": {{Slot: ended}}, "runs": {{Slot: runs}},
	} {
		check(s.Locks().Write(ctx, core.Lock{Job: name, Holders: holders, Nonce: name}, 0))
		check(s.AlertStates().Write(ctx, exchange.AlertState{Job: name, Nonce: name}, 0))
	}
	s.node(exchange.Node{Name: "alive", State: exchange.NodeAlive, Lease: time.Hour})
	s.node(exchange.Node{Name: "stopped", State: exchange.NodeStopped})
	for _, name := range []string{"alive", "stopped", "unknown"} {
		check(s.HandlerLists().Write(ctx, exchange.Handlers{Node: name, Nonce: name}, 0))
	}
	keys := func() (there []string) {
		t.Helper()
		bucket, err := s.js.KeyValue(ctx, "cronce_state")
		if err != nil {
			t.Fatal(err)
		}
		all, err := bucket.Keys(ctx)
		if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
			t.Fatal(err)
		}
		for _, key := range all {
			if strings.Contains(key, ".") {
				there = append(there, key)
			}
		}
		slices.Sort(there)
		return there
	}
	turn := func() {
		t.Helper()
		if err := s.sweeper.Turn(ctx); err != nil {
			t.Fatal(err)
		}
	}
	turn()
	if n := len(keys()); n != 13 {
		t.Errorf("%d keys after the first turn, want all 13", n)
	}
	s.shift = sweep.CleanEvery
	turn()
	if got, want := keys(), []string{"alert.report", "handlers.alive", "lock.report", "lock.runs"}; !slices.Equal(got, want) {
		t.Errorf("the state has %v, want %v", got, want)
	}
	// Their markers go too, and so does that of a job.
	if err := s.Jobs().Delete(ctx, "report", s.revision("report")); err != nil {
		t.Fatal(err)
	}
	for stream, subject := range map[string]string{"KV_cronce_jobs": "$KV.cronce_jobs.report", "KV_cronce_state": "$KV.cronce_state.lock.empty"} {
		st, err := s.js.Stream(ctx, stream)
		if err != nil {
			t.Fatal(err)
		}
		m, err := st.GetLastMsgForSubject(ctx, subject)
		if err != nil || m.Header.Get("Nats-TTL") != "24h" {
			t.Errorf("the marker on %s has the age %q, %v; want 24h", subject, m.Header.Get("Nats-TTL"), err)
		}
	}
}

func (s *site) revision(name string) uint64 {
	s.Helper()
	_, revision, err := s.Jobs().Read(s.Context(), name)
	if err != nil {
		s.Fatal(err)
	}
	return revision
}
