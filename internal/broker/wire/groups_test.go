package wire_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// slowPort delays each message, like storage that syncs each message.
type slowPort struct{ wire.Port }

func (p slowPort) PublishMsg(m *nats.Msg) error {
	time.Sleep(400 * time.Microsecond)
	return p.Port.PublishMsg(m)
}

// slowLedger returns the ledger of a store whose writes take long.
func slowLedger(s *kv.Store) *kv.Ledger {
	s.Intercept(func(p wire.Port) wire.Port { return slowPort{p} })
	return s.Ledger()
}

// claims writes n records at revision 0, all at once, and returns the results.
func claims(ctx context.Context, t *testing.T, l *kv.Ledger, n int, nonce string) []result {
	t.Helper()
	results := make([]result, n)
	var answers sync.WaitGroup
	answers.Add(n)
	for i := range n {
		l.Send(ctx, kvtest.Record(i, nonce), 0, func(revision uint64, err error) {
			if results[i] != (result{}) {
				t.Errorf("write %d is answered twice", i)
			}
			results[i] = result{revision, err}
			answers.Done()
		})
	}
	answers.Wait()
	return results
}

// wantClaimed checks that the stored records have the nonces and revisions of the results
// that succeeded, and returns how many did.
func wantClaimed(t *testing.T, l *kv.Ledger, nonce string, results []result) (won int) {
	t.Helper()
	for i, r := range results {
		stored, revision, err := l.Read(t.Context(), kvtest.Record(i, "").Slot)
		switch {
		case err != nil:
			t.Fatal(err)
		case r.err == nil && (stored.Nonce != nonce || revision != r.revision):
			t.Errorf("write %d reported revision %d; stored is %q at %d", i, r.revision, stored.Nonce, revision)
		case r.err != nil && (!errors.Is(r.err, job.ErrConflict) || stored.Nonce == nonce):
			t.Errorf("write %d reported %v; stored is %q", i, r.err, stored.Nonce)
		case r.err == nil:
			won++
		}
	}
	return won
}

func TestWritesThatWaitOnSlowStorageGoInBatches(t *testing.T) {
	t.Parallel()
	s := openStore(t, natstest.Run(t).JetStream())
	l := slowLedger(s)
	tap := countBatched(t, s.Conn(), "ledger")
	began := time.Now()
	results := claims(t.Context(), t, l, 1000, "mine")
	took := time.Since(began)
	if won := wantClaimed(t, l, "mine", results); won != 1000 {
		t.Errorf("%d of 1000 writes won", won)
	}
	if parts, alone := tap.counts(t); parts < 250 || !sentOnce(parts+alone, 1000, took) {
		t.Errorf("%d writes went in batches and %d singly, in %v", parts, alone, took)
	}
}

// sentOnce reports whether n writes were sent as one message each. On a busy machine an answer may
// take longer than an attempt, and only then may a write be sent again.
func sentOnce(messages, n int, took time.Duration) bool {
	return messages == n || messages > n && took > wire.AttemptTimeout
}

func TestALoneWriteNeverWaits(t *testing.T) {
	t.Parallel()
	s := openStore(t, natstest.Run(t).JetStream())
	l := slowLedger(s)
	tap := countBatched(t, s.Conn(), "ledger")
	var longest time.Duration
	for i := range 50 {
		began := time.Now()
		if _, err := l.Write(t.Context(), kvtest.Record(i, "mine"), 0); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(began))
	}
	if parts, alone := tap.counts(t); parts != 0 || !sentOnce(alone, 50, longest) {
		t.Errorf("%d writes went in batches and %d singly, the longest in %v", parts, alone, longest)
	}
}

// Two processes claim the same slots at once. Each batch of one conflicts with some writes
// of the other.
func TestGroupsThatClaimTheSameSlotsWinEachOnce(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	a, b := slowLedger(openStore(t, server.JetStream())), slowLedger(openStore(t, server.JetStream()))
	var mine, theirs []result
	var both sync.WaitGroup
	both.Go(func() { mine = claims(t.Context(), t, a, 400, "mine") })
	both.Go(func() { theirs = claims(t.Context(), t, b, 400, "theirs") })
	both.Wait()
	if won := wantClaimed(t, a, "mine", mine) + wantClaimed(t, b, "theirs", theirs); won != 400 {
		t.Errorf("400 slots have %d winners", won)
	}
}

// The broker's answers are lost, so nothing is settled until the client receives them again.
func TestWritesOfAGroupAreSettledWhenTheirAnswersAreLost(t *testing.T) {
	t.Parallel()
	through, beside, p := behind(t)
	l := slowLedger(through)
	p.Deafen()
	var healing sync.WaitGroup
	healing.Go(func() {
		natstest.Eventually(t, "all writes to be stored", func() bool {
			n := 0
			for range beside.Ledger().List(t.Context(), kv.ListFilter{}) {
				n++
			}
			return n == 300
		})
		p.Heal()
	})
	results := claims(t.Context(), t, l, 300, "mine")
	healing.Wait()
	if won := wantClaimed(t, beside.Ledger(), "mine", results); won != 300 {
		t.Errorf("%d of 300 writes won", won)
	}
}

func TestWritesOfAGroupEndWithTheirContext(t *testing.T) {
	t.Parallel()
	through, _, p := behind(t)
	l := slowLedger(through)
	p.Deafen()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for i, r := range claims(ctx, t, l, 500, "mine") {
		if !errors.Is(r.err, job.ErrUnknown) {
			t.Fatalf("write %d: %v, want %v", i, r.err, job.ErrUnknown)
		}
	}
	p.Heal()
	if _, err := l.Write(t.Context(), kvtest.Record(1000, "later"), 0); err != nil {
		t.Errorf("a later write: %v", err)
	}
}
