package kv_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/job"
)

// anyLedger has the methods of a ledger that the suite calls.
type anyLedger interface {
	Read(context.Context, job.Slot) (job.Record, uint64, error)
	Write(context.Context, job.Record, uint64) (uint64, error)
	Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error))
	Beside(ctx context.Context, own job.Slot, revision uint64, others []job.Slot) ([]job.Record, error)
}

// anyNodes has the methods of the bucket of nodes that the suite calls.
type anyNodes interface {
	Read(ctx context.Context, name string) (exchange.NodeEvent, error)
	Write(context.Context, exchange.Node, uint64) (uint64, error)
	List(context.Context) ([]exchange.NodeEvent, error)
	Watch(context.Context, func(exchange.NodeEvent)) error
}

// anyJobs has the methods of the registry that the suite calls.
type anyJobs interface {
	Read(ctx context.Context, name string) (plans.Entry, uint64, error)
	Write(context.Context, plans.Definition, uint64) (uint64, error)
	Delete(ctx context.Context, name string, revision uint64) error
	List(context.Context) ([]plans.Entry, error)
	Watch(context.Context, func(plans.RegistryEvent)) error
}

// anyWatermark has the methods of the watermark that the suite calls.
type anyWatermark interface {
	Read(context.Context) (exchange.Watermark, uint64, error)
	Write(context.Context, exchange.Watermark, uint64) (uint64, error)
}

// anyLocks has the methods of the locks that the suite calls.
type anyLocks interface {
	Read(ctx context.Context, name string) (core.Lock, uint64, error)
	Write(context.Context, core.Lock, uint64) (uint64, error)
	Send(ctx context.Context, l core.Lock, revision uint64, answered func(uint64, error))
}

// anyStore is a store with one namespace, which is empty when a test begins.
type anyStore struct {
	Ledger    anyLedger
	Nodes     anyNodes
	Jobs      anyJobs
	Watermark anyWatermark
	Locks     anyLocks
}

// conformTo runs the tests that every store must pass: the one on JetStream (package kv) and the one in
// memory (package memstore), so that other packages can use memstore in their tests in place of kv. open must return a new store at each call.
func conformTo(t *testing.T, open func(*testing.T) anyStore) {
	run := func(name string, test func(*testing.T, anyStore)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
	for name, test := range map[string]func(*testing.T, anyStore){
		"ReadOfNothingIsNotFound":               readOfNothing,
		"OfTwoWritersAtLeastOneFindsTheOther":   beside,
		"NodesAreListedAndWatched":              nodesWatched,
		"JobsAreListedDeletedAndCreatedAgain":   jobsDeleted,
		"JobsAreWatchedInTheOrderOfTheirWrites": jobsWatched,
		"ABrokenJobIsNamedAndHidesNoOther":      jobBroken,
		"WatermarkIsOneKey":                     watermark,
	} {
		run(name, test)
	}
	for name, test := range map[string]func(*testing.T, anyStore){
		"CreateThenUpdateAtTheRevision":        createThenUpdate,
		"OfRacingWritersExactlyOneWins":        racing,
		"TheSameWriteAgainIsTheSameSuccess":    sameWriteAgain,
		"AnOverwrittenWriteIsLost":             overwritten,
		"AnOutcomeIsStoredAtItsFenceOnly":      outcomeAtItsFence,
		"WriteWithoutANonceIsRefused":          withoutNonce,
		"UnknownFieldsAreKept":                 unknownFields,
		"WriteAtARevisionOfNothingIsAConflict": revisionOfNothing,
		"EachJobHasALockOfItsOwn":              locks,
	} {
		run(name, test)
		run(name+"/Sent", func(t *testing.T, m anyStore) {
			m.Ledger, m.Locks = sentLedger{m.Ledger}, sentLocks{m.Locks}
			test(t, m)
		})
	}
}

// sentLocks are locks whose Write calls Send and waits for the answer.
type sentLocks struct{ anyLocks }

func (s sentLocks) Write(ctx context.Context, l core.Lock, revision uint64) (uint64, error) {
	return answer(func(answered func(uint64, error)) { s.Send(ctx, l, revision, answered) })
}

// answer calls send, waits until send calls answered, and returns what answered was called with.
func answer(send func(answered func(uint64, error))) (won uint64, err error) {
	done := make(chan struct{})
	send(func(revision uint64, failed error) {
		won, err = revision, failed
		close(done) // panics if answered is called twice
	})
	<-done
	return won, err
}

// limit bounds the duration of one test of the suite.
const limit = 30 * time.Second

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func next[T any](t *testing.T, ctx context.Context, events <-chan T) T {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-ctx.Done():
		t.Fatal("no event came")
		panic("unreachable")
	}
}

func watermark(t *testing.T, m anyStore) {
	ctx := limited(t)
	_, rev, err := m.Watermark.Read(ctx)
	wantError(t, err, job.ErrNotFound)
	rev = must[uint64](t)(m.Watermark.Write(ctx, exchange.Watermark{Time: at, Revision: 3, Node: "n1", Nonce: "a"}, rev))
	_, err = m.Watermark.Write(ctx, exchange.Watermark{Time: at, Revision: 3, Node: "n2", Nonce: "b"}, 0)
	wantError(t, err, job.ErrConflict)
	must[uint64](t)(m.Watermark.Write(ctx, exchange.Watermark{Time: at.Add(time.Second), Revision: 4, Node: "n2", Nonce: "c"}, rev))
	got, _, err := m.Watermark.Read(ctx)
	if err != nil || !got.Time.Equal(at.Add(time.Second)) || got.Revision != 4 || !strings.HasPrefix(got.Node, "n2") {
		t.Fatalf("read %+v, %v", got, err)
	}
}

func locks(t *testing.T, m anyStore) {
	ctx := limited(t)
	_, rev, err := m.Locks.Read(ctx, "report")
	wantError(t, err, job.ErrNotFound)
	held := core.Lock{Job: "report", Nonce: "a", Holders: []core.LockSlot{{Slot: kvtest.Record(0, "").Slot, At: at, OnTime: true, Since: at}}}
	rev = must[uint64](t)(m.Locks.Write(ctx, held, rev))
	_, err = m.Locks.Write(ctx, core.Lock{Job: "report", Nonce: "b"}, 0)
	wantError(t, err, job.ErrConflict)
	_, _, err = m.Locks.Read(ctx, "other")
	wantError(t, err, job.ErrNotFound)
	got, at, err := m.Locks.Read(ctx, "report")
	if err != nil || at != rev || !got.Same(held) || got.Holders[0] != held.Holders[0] {
		t.Fatalf("read %+v at %d, %v", got, at, err)
	}
}
