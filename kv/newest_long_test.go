//go:build long

package kv_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// TestNewestReadsEachRecordOnceWithFewRequests reads jobs that have most of the records, a part of
// them, more than the broker's index lists, a handful of old ones, and none. The ledger has gaps, as
// each outcome overwrites a claim.
func TestNewestReadsEachRecordOnceWithFewRequests(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	store := open(t, s.JetStream(), kv.Options{})
	ledger := store.Ledger()
	const records = 24_000
	nameOf := func(i int) string {
		switch {
		case i < 30:
			return "old"
		case i%20 == 1:
			return "rare" // 1,200 records
		case i%8 == 0 && i > records/2:
			return "some"
		}
		return "most"
	}
	kvtest.Fill(t, ledger, records, func(i int) job.Record {
		return job.Record{Slot: job.Slot{Job: nameOf(i), Token: fmt.Sprint(i)}, State: job.Running, Node: "n", Nonce: fmt.Sprint(i), Due: time.Unix(int64(i), 0)}
	})
	var entries []kv.LedgerEntry
	for e, err := range ledger.List(t.Context(), kv.ListFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	all := map[string][]kv.LedgerEntry{}
	for n, e := range entries {
		if n%40 == 0 { // an outcome
			e.State, e.Nonce = job.Succeeded, e.Nonce+"b"
			var err error
			if e.Revision, err = ledger.Write(t.Context(), e.Record, e.Revision); err != nil {
				t.Fatal(err)
			}
		}
		all[e.Slot.Job], all[""] = append(all[e.Slot.Job], e), append(all[""], e)
	}

	watcher := s.Conn()
	sub, err := watcher.SubscribeSync("$JS.API.DIRECT.GET.KV_cronce_ledger")
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	requests := func() (all [][]byte) {
		if err := watcher.Flush(); err != nil {
			t.Fatal(err)
		}
		for {
			m, err := sub.NextMsg(time.Nanosecond)
			if err != nil {
				return all
			}
			all = append(all, m.Data)
		}
	}
	for _, name := range []string{"most", "some", "rare", "old", "none", ""} {
		var want, got []uint64
		for _, e := range all[name] {
			want = append(want, e.Revision)
		}
		slices.Sort(want)
		slices.Reverse(want)
		for e, err := range ledger.Newest(t.Context(), name) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Revision)
		}
		if !slices.Equal(got, want) {
			t.Errorf("job %q: %d records in %v..., want %d in %v...", name, len(got), got[:min(5, len(got))], len(want), want[:min(5, len(want))])
		}
		requests()
		taken := 0
		for range ledger.Newest(t.Context(), name) {
			if taken++; taken == 20 {
				break
			}
		}
		sent := requests()
		if len(sent) == 0 || len(sent) > 500 {
			t.Errorf("job %q: %d requests for %d records", name, len(sent), taken)
		}
		for _, r := range sent {
			var q struct {
				Batch  int    `json:"batch"`
				Seq    int    `json:"seq"`
				Filter string `json:"next_by_subj"`
			}
			// For a batch without a filter the broker visits each key that there is.
			if err := json.Unmarshal(r, &q); err != nil || q.Batch > 0 && q.Seq > 0 && q.Filter == "" {
				t.Errorf("job %q: request %s, %v", name, r, err)
			}
		}
	}
}
