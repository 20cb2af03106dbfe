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
}

// anyLines has the methods of the lines that the suite calls.
type anyLines interface {
	Put(ctx context.Context, e core.Entry, revision uint64) (sequence uint64, err error)
	Read(ctx context.Context, name string, from uint64) ([]core.Entry, error)
	Purge(ctx context.Context, name string, before uint64) error
	Counts(ctx context.Context) (map[string]uint64, error)
}

// anyStore is a store with one namespace, which is empty when a test begins.
type anyStore struct {
	Ledger    anyLedger
	Nodes     anyNodes
	Jobs      anyJobs
	Watermark anyWatermark
	Locks     anyLocks
	Lines     anyLines
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
		"EachJobHasALineOfItsOwn":               lines,
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
			m.Ledger = sentLedger{m.Ledger}
			test(t, m)
		})
	}
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

// lines: an entry that is put again has its first sequence, a line is read from a sequence on, and a purge
// removes the entries before one.
func lines(t *testing.T, m anyStore) {
	ctx := t.Context()
	entry := func(name string, minute int) core.Entry {
		at := time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC)
		return core.Entry{Slot: job.NewSlot(name, at), At: at, OnTime: minute%2 == 0}
	}
	var put []uint64
	for i := range 3 {
		put = append(put, must[uint64](t)(m.Lines.Put(ctx, entry("report", i), 7)))
		must[uint64](t)(m.Lines.Put(ctx, entry("other", i), 7))
	}
	if again := must[uint64](t)(m.Lines.Put(ctx, entry("report", 1), 7)); again != put[1] {
		t.Errorf("an entry that was put again has sequence %d, not %d", again, put[1])
	}
	if anew := must[uint64](t)(m.Lines.Put(ctx, entry("report", 0), 9)); anew <= put[2] {
		t.Errorf("an entry for a new record has sequence %d, before %d", anew, put[2])
	}
	read := must[[]core.Entry](t)(m.Lines.Read(ctx, "report", put[1]))
	if len(read) != 3 || read[0].Sequence != put[1] || read[0].Slot != entry("report", 1).Slot || !read[1].At.Equal(entry("report", 2).At) || !read[1].OnTime {
		t.Errorf("read %+v from %d on", read, put[1])
	}
	if err := m.Lines.Purge(ctx, "report", put[2]); err != nil {
		t.Fatal(err)
	}
	if counts := must[map[string]uint64](t)(m.Lines.Counts(ctx)); counts["report"] != 2 || counts["other"] != 3 {
		t.Errorf("counted %v after the purge", counts)
	}
	if read := must[[]core.Entry](t)(m.Lines.Read(ctx, "nobody", 0)); len(read) != 0 {
		t.Errorf("the line of no job has %+v", read)
	}
}
