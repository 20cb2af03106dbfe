package kv_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// List returns a job's records alone and in the order of their last writes. It does so
// for few records, which the broker finds by its subject index, and for many, which it
// finds in the stream.
func TestAJobsRecordsAreListedAlikeHoweverMany(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := open(t, js, kv.Options{})
	ctx := within(t, 30*time.Second)
	const many = 1100
	put := func(name string, n int) {
		t.Helper()
		slot := job.NewSlot(name, time.Unix(int64(n), 0))
		value, err := job.Record{Slot: slot, State: job.Succeeded, Nonce: fmt.Sprint(name, n)}.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.PublishAsync("$KV.cronce_ledger."+slot.Key(), value, jetstream.WithStallWait(10*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range many {
		put("many", n)
		if n%100 == 0 {
			put("few", n)
		}
	}
	put("few", 300) // this is now the job's newest write
	<-js.PublishAsyncComplete()
	state := func() time.Time {
		info, err := js.Stream(ctx, "KV_cronce_ledger")
		if err != nil {
			t.Fatal(err)
		}
		return info.CachedInfo().State.LastTime.Add(time.Nanosecond)
	}
	cut := state()
	put("few", 1)
	put("many", 1)
	if _, err := js.Publish(ctx, "$KV.cronce_ledger."+job.NewSlot("few", time.Unix(100, 0)).Key(), nil); err != nil {
		t.Fatal(err) // the empty value cannot be decoded
	}
	<-js.PublishAsyncComplete()
	for name, want := range map[string]struct{ all, since int }{"few": {11, 1}, "many": {many, 1}, "man": {0, 0}, "": {many + 11, 2}} {
		for since, want := range map[time.Time]int{{}: want.all, cut: want.since} {
			found, bad, last := 0, 0, uint64(0)
			for e, err := range s.Ledger().List(ctx, kv.ListFilter{Job: name, Since: since}) {
				switch {
				case errors.Is(err, job.ErrInvalid):
					bad++
					continue
				case err != nil:
					t.Fatal(err)
				case e.Revision <= last || name != "" && e.Slot.Job != name:
					t.Errorf("of %q: %s at revision %d after %d", name, e.Slot, e.Revision, last)
				}
				found, last = found+1, e.Revision
			}
			if wantBad := map[bool]int{true: 1}[name == "few" || name == ""]; found != want || bad != wantBad {
				t.Errorf("of %q since %v: %d records and %d that cannot be read, want %d and %d", name, since, found, bad, want, wantBad)
			}
		}
	}
	for range s.Ledger().List(ctx, kv.ListFilter{}) {
		break // the batch read ahead is discarded
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	refused := false
	for _, err := range s.Ledger().List(ended, kv.ListFilter{Job: "many"}) {
		refused = err != nil
	}
	if !refused {
		t.Error("a pass that was cut short reads as a whole one")
	}
}
