package kv_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/job"
)

// sentLedger is a ledger whose Write calls Send and waits for the answer.
type sentLedger struct{ anyLedger }

func (s sentLedger) Write(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	return answer(func(answered func(uint64, error)) { s.Send(ctx, r, revision, answered) })
}

func readOfNothing(t *testing.T, m anyStore) {
	_, rev, err := m.Ledger.Read(limited(t), kvtest.Record(0, "a").Slot)
	wantError(t, err, job.ErrNotFound)
	if rev != 0 {
		t.Errorf("a slot without a record has revision %d, want 0", rev)
	}
}

// beside checks that at least one of two writers finds the other's record, if each looks for it
// after its own write.
func beside(t *testing.T, m anyStore) {
	ctx := limited(t)
	const rounds = 20
	for round := range rounds {
		ours := []job.Record{kvtest.Record(2*round, fmt.Sprintf("a%d", round)), kvtest.Record(2*round+1, fmt.Sprintf("b%d", round))}
		var found [2]int
		var group sync.WaitGroup
		for i := range ours {
			group.Go(func() {
				rev, err := m.Ledger.Write(ctx, ours[i], 0)
				if err != nil {
					t.Error(err)
					return
				}
				others, err := m.Ledger.Beside(ctx, ours[i].Slot, rev, []job.Slot{ours[1-i].Slot, kvtest.Record(9999, "").Slot})
				if err != nil {
					t.Error(err)
				}
				found[i] = len(others)
				for _, r := range others {
					if r.Slot != ours[1-i].Slot || r.Nonce != ours[1-i].Nonce {
						t.Errorf("found %s (%s), want the other's", r.Slot, r.Nonce)
					}
				}
			})
		}
		group.Wait()
		if found[0]+found[1] == 0 {
			t.Fatalf("round %d: neither found the other", round)
		}
	}
}

func createThenUpdate(t *testing.T, m anyStore) {
	ctx := limited(t)
	first := must[uint64](t)(m.Ledger.Write(ctx, kvtest.Record(0, "a"), 0))
	done := kvtest.Record(0, "b")
	done.State, done.Finished, done.Output = job.Succeeded, at.Add(time.Second), "42\n"
	second := must[uint64](t)(m.Ledger.Write(ctx, done, first))
	if first == 0 || second <= first {
		t.Fatalf("revisions %d, then %d: a fence must grow", first, second)
	}
	got, rev, err := m.Ledger.Read(ctx, done.Slot)
	if err != nil || rev != second || got.State != job.Succeeded || got.Output != "42\n" || got.Nonce != "b" || !got.Finished.Equal(done.Finished) {
		t.Fatalf("read %+v at %d, %v; want what was written at %d", got, rev, err, second)
	}
	_, err = m.Ledger.Write(ctx, kvtest.Record(0, "c"), first)
	wantError(t, err, job.ErrConflict)
	_, err = m.Ledger.Write(ctx, kvtest.Record(0, "d"), 0)
	wantError(t, err, job.ErrConflict)
}

func racing(t *testing.T, m anyStore) {
	ctx := limited(t)
	const keys, writers = 10, 5
	var mu sync.Mutex
	winners, revisions := map[int][]string{}, map[int]uint64{}
	race := func(round string, revision func(key int) uint64) {
		clear(winners)
		var group sync.WaitGroup
		for key := range keys {
			for w := range writers {
				group.Go(func() {
					nonce := fmt.Sprintf("%s-%d-%d", round, key, w)
					rev, err := m.Ledger.Write(ctx, kvtest.Record(key, nonce), revision(key))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						winners[key] = append(winners[key], nonce)
						defer func() { revisions[key] = rev }()
					case !errors.Is(err, job.ErrConflict):
						t.Errorf("%s: %v: want success or conflict", nonce, err)
					}
				})
			}
		}
		group.Wait()
		for key := range keys {
			got, rev, err := m.Ledger.Read(ctx, kvtest.Record(key, "").Slot)
			if err != nil || len(winners[key]) != 1 || got.Nonce != winners[key][0] || rev != revisions[key] {
				t.Fatalf("%s, key %d: winners %v at %d, stored %q at %d (%v)", round, key, winners[key], revisions[key], got.Nonce, rev, err)
			}
		}
	}
	race("create", func(int) uint64 { return 0 })
	before := map[int]uint64{}
	maps.Copy(before, revisions)
	race("update", func(key int) uint64 { return before[key] })
}

func sameWriteAgain(t *testing.T, m anyStore) {
	ctx := limited(t)
	first := must[uint64](t)(m.Ledger.Write(ctx, kvtest.Record(0, "a"), 0))
	if again := must[uint64](t)(m.Ledger.Write(ctx, kvtest.Record(0, "a"), 0)); again != first {
		t.Fatalf("created at %d, the same again gave %d", first, again)
	}
	second := must[uint64](t)(m.Ledger.Write(ctx, kvtest.Record(0, "b"), first))
	if again := must[uint64](t)(m.Ledger.Write(ctx, kvtest.Record(0, "b"), first)); again != second {
		t.Fatalf("updated to %d, the same again gave %d", second, again)
	}
}

func overwritten(t *testing.T, m anyStore) {
	ctx := limited(t)
	first := must[uint64](t)(m.Ledger.Write(ctx, kvtest.Record(0, "a"), 0))
	must[uint64](t)(m.Ledger.Write(ctx, kvtest.Record(0, "taken over"), first))
	_, err := m.Ledger.Write(ctx, kvtest.Record(0, "a"), 0)
	wantError(t, err, job.ErrConflict)
}

// outcomeAtItsFence checks that a worker that lost its claim cannot record any outcome.
func outcomeAtItsFence(t *testing.T, m anyStore) {
	ctx := limited(t)
	for i, state := range []job.State{job.Succeeded, job.Failed, job.Skipped, job.Missed, job.Expired, job.Cancelled} {
		fence := must[uint64](t)(m.Ledger.Write(ctx, kvtest.Record(i, "claim"), 0))
		taken := must[uint64](t)(m.Ledger.Write(ctx, kvtest.Record(i, "taken over"), fence))
		outcome := kvtest.Record(i, "outcome")
		outcome.State, outcome.Finished = state, at
		_, err := m.Ledger.Write(ctx, outcome, fence)
		wantError(t, err, job.ErrConflict)
		if stands, revision, err := m.Ledger.Read(ctx, outcome.Slot); err != nil || revision != taken || stands.Nonce != "taken over" {
			t.Errorf("%s: %q stands at %d, %v; want the claim that took over, at %d", state, stands.Nonce, revision, err, taken)
		}
	}
}

func withoutNonce(t *testing.T, m anyStore) {
	_, err := m.Ledger.Write(limited(t), kvtest.Record(0, ""), 0)
	wantError(t, err, job.ErrInvalid)
}

func unknownFields(t *testing.T, m anyStore) {
	ctx := limited(t)
	r := kvtest.Record(0, "a")
	r.Extra = codec.Extra{"from_the_future": json.RawMessage(`{"x":1}`)}
	rev := must[uint64](t)(m.Ledger.Write(ctx, r, 0))
	got, _, err := m.Ledger.Read(ctx, r.Slot)
	if err != nil {
		t.Fatal(err)
	}
	got.Nonce, got.State = "b", job.Succeeded
	must[uint64](t)(m.Ledger.Write(ctx, got, rev))
	if got, _, err = m.Ledger.Read(ctx, r.Slot); err != nil || string(got.Extra["from_the_future"]) != `{"x":1}` {
		t.Fatalf("after an update: extra %v, %v", got.Extra, err)
	}
}

func revisionOfNothing(t *testing.T, m anyStore) {
	_, err := m.Ledger.Write(limited(t), kvtest.Record(0, "a"), 7)
	wantError(t, err, job.ErrConflict)
}
