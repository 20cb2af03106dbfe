// Package kvtest is the tests that every store must pass. The same suite tests the store on
// JetStream and the one in memory, which other packages use in their tests, so the two cannot
// differ.
package kvtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/codec"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Ledger is what the suite needs of a ledger.
type Ledger interface {
	Read(context.Context, job.Slot) (job.Record, uint64, error)
	Write(context.Context, job.Record, uint64) (uint64, error)
	Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error))
	Beside(ctx context.Context, own job.Slot, revision uint64, others []job.Slot) ([]job.Record, error)
}

// Nodes is what the suite needs of the nodes.
type Nodes interface {
	Read(ctx context.Context, name string) (core.Node, uint64, error)
	Write(context.Context, core.Node, uint64) (uint64, error)
	List(context.Context) ([]core.NodeEvent, error)
	Watch(context.Context, func(core.NodeEvent)) error
}

// Jobs is what the suite needs of the registry.
type Jobs interface {
	Read(ctx context.Context, name string) (core.Entry, uint64, error)
	Write(context.Context, core.Definition, uint64) (uint64, error)
	Delete(ctx context.Context, name string, revision uint64) error
	List(context.Context) ([]core.Entry, error)
	Watch(context.Context, func(core.RegistryEvent)) error
}

// Watermark is what the suite needs of the watermark.
type Watermark interface {
	Read(context.Context) (core.Watermark, uint64, error)
	Write(context.Context, core.Watermark, uint64) (uint64, error)
}

// Locks is what the suite needs of the locks.
type Locks interface {
	Read(ctx context.Context, name string) (core.Lock, uint64, error)
	Write(context.Context, core.Lock, uint64) (uint64, error)
	Send(ctx context.Context, l core.Lock, revision uint64, answered func(uint64, error))
}

// Memory is an empty namespace.
type Memory struct {
	Ledger    Ledger
	Nodes     Nodes
	Jobs      Jobs
	Watermark Watermark
	Locks     Locks
}

// Conform runs the suite. open returns another empty namespace each time.
func Conform(t *testing.T, open func(*testing.T) Memory) {
	for name, test := range map[string]func(*testing.T, Memory){
		"WhatIsSentIsCreatedThenUpdated":        sent(createThenUpdate),
		"OfRacingSendersExactlyOneWins":         sent(racing),
		"TheSameSentAgainIsTheSameSuccess":      sent(sameWriteAgain),
		"SentAndOverwrittenIsLost":              sent(overwritten),
		"AnOutcomeIsStoredAtItsFenceOnly":       outcomeAtItsFence,
		"AnOutcomeIsSentAtItsFenceOnly":         sent(outcomeAtItsFence),
		"SentWithoutANonceIsRefused":            sent(withoutNonce),
		"UnknownFieldsThatAreSentAreKept":       sent(unknownFields),
		"SentAtARevisionOfNothingIsAConflict":   sent(revisionOfNothing),
		"ReadOfNothingIsNotFound":               readOfNothing,
		"CreateThenUpdateAtTheRevision":         createThenUpdate,
		"OfRacingWritersExactlyOneWins":         racing,
		"TheSameWriteAgainIsTheSameSuccess":     sameWriteAgain,
		"AnOverwrittenWriteIsLost":              overwritten,
		"WriteWithoutANonceIsRefused":           withoutNonce,
		"UnknownFieldsAreKept":                  unknownFields,
		"WriteAtARevisionOfNothingIsAConflict":  revisionOfNothing,
		"OfTwoWritersOneFindsTheOther":          beside,
		"NodesAreListedAndWatched":              nodesWatched,
		"JobsAreListedDeletedAndCreatedAgain":   jobsDeleted,
		"JobsAreWatchedInTheOrderOfTheirWrites": jobsWatched,
		"ABrokenJobIsNamedAndHidesNoOther":      jobBroken,
		"WatermarkIsOneKey":                     watermark,
		"EachJobHasALockOfItsOwn":               locks,
		"EachLockIsSentOfItsOwn":                func(t *testing.T, m Memory) { m.Locks = sentLocks{m.Locks}; locks(t, m) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// sent is test with a ledger that writes by Send.
func sent(test func(*testing.T, Memory)) func(*testing.T, Memory) {
	return func(t *testing.T, m Memory) {
		m.Ledger = Sent{m.Ledger}
		test(t, m)
	}
}

// Sent is a ledger whose Write calls Send and waits for the answer.
type Sent struct{ Ledger }

// Write sends the record, and returns the answer.
func (s Sent) Write(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	return answer(func(told func(uint64, error)) { s.Send(ctx, r, revision, told) })
}

// sentLocks are locks whose Write calls Send and waits for the answer.
type sentLocks struct{ Locks }

func (s sentLocks) Write(ctx context.Context, l core.Lock, revision uint64) (uint64, error) {
	return answer(func(told func(uint64, error)) { s.Send(ctx, l, revision, told) })
}

// answer returns the answer of send.
func answer(send func(told func(uint64, error))) (won uint64, err error) {
	answered := make(chan struct{})
	send(func(revision uint64, failed error) {
		won, err = revision, failed
		close(answered) // it panics if the callback is called twice
	})
	<-answered
	return won, err
}

// Limit bounds one test of the suite.
const Limit = 30 * time.Second

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

var at = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// Record returns the record of a running slot of the job report.
func Record(minute int, nonce string) job.Record {
	return job.Record{
		Slot: job.NewSlot("report", at.Add(time.Duration(minute)*time.Minute)), Queue: "default", State: job.Running,
		Attempt: 1, Node: "n1", Nonce: nonce, Attempts: []job.Attempt{{Number: 1, Node: "n1", Started: at}},
	}
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

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want one that is %q", err, want)
	}
}

func readOfNothing(t *testing.T, m Memory) {
	_, rev, err := m.Ledger.Read(limited(t), Record(0, "a").Slot)
	wantError(t, err, job.ErrNotFound)
	if rev != 0 {
		t.Errorf("revision %d of nothing", rev)
	}
}

// Two writers each look for the other's record after their own write.
func beside(t *testing.T, m Memory) {
	ctx := limited(t)
	const rounds = 20
	for round := range rounds {
		ours := []job.Record{Record(2*round, fmt.Sprintf("a%d", round)), Record(2*round+1, fmt.Sprintf("b%d", round))}
		var found [2]int
		var group sync.WaitGroup
		for i := range ours {
			group.Go(func() {
				rev, err := m.Ledger.Write(ctx, ours[i], 0)
				if err != nil {
					t.Error(err)
					return
				}
				others, err := m.Ledger.Beside(ctx, ours[i].Slot, rev, []job.Slot{ours[1-i].Slot, Record(9999, "").Slot})
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

func createThenUpdate(t *testing.T, m Memory) {
	ctx := limited(t)
	first := must[uint64](t)(m.Ledger.Write(ctx, Record(0, "a"), 0))
	done := Record(0, "b")
	done.State, done.Finished, done.Output = job.Succeeded, at.Add(time.Second), "42\n"
	second := must[uint64](t)(m.Ledger.Write(ctx, done, first))
	if first == 0 || second <= first {
		t.Fatalf("revisions %d, then %d: a fence must grow", first, second)
	}
	got, rev, err := m.Ledger.Read(ctx, done.Slot)
	if err != nil || rev != second || got.State != job.Succeeded || got.Output != "42\n" || got.Nonce != "b" || !got.Finished.Equal(done.Finished) {
		t.Fatalf("read %+v at %d, %v; want what was written at %d", got, rev, err, second)
	}
	_, err = m.Ledger.Write(ctx, Record(0, "c"), first)
	wantError(t, err, job.ErrConflict)
	_, err = m.Ledger.Write(ctx, Record(0, "d"), 0)
	wantError(t, err, job.ErrConflict)
}

func racing(t *testing.T, m Memory) {
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
					rev, err := m.Ledger.Write(ctx, Record(key, nonce), revision(key))
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
			got, rev, err := m.Ledger.Read(ctx, Record(key, "").Slot)
			if err != nil || len(winners[key]) != 1 || got.Nonce != winners[key][0] || rev != revisions[key] {
				t.Fatalf("%s, key %d: winners %v at %d, stored %q at %d (%v)", round, key, winners[key], revisions[key], got.Nonce, rev, err)
			}
		}
	}
	race("create", func(int) uint64 { return 0 })
	before := map[int]uint64{}
	for key, rev := range revisions {
		before[key] = rev
	}
	race("update", func(key int) uint64 { return before[key] })
}

func sameWriteAgain(t *testing.T, m Memory) {
	ctx := limited(t)
	first := must[uint64](t)(m.Ledger.Write(ctx, Record(0, "a"), 0))
	if again := must[uint64](t)(m.Ledger.Write(ctx, Record(0, "a"), 0)); again != first {
		t.Fatalf("created at %d, the same again gave %d", first, again)
	}
	second := must[uint64](t)(m.Ledger.Write(ctx, Record(0, "b"), first))
	if again := must[uint64](t)(m.Ledger.Write(ctx, Record(0, "b"), first)); again != second {
		t.Fatalf("updated to %d, the same again gave %d", second, again)
	}
}

func overwritten(t *testing.T, m Memory) {
	ctx := limited(t)
	first := must[uint64](t)(m.Ledger.Write(ctx, Record(0, "a"), 0))
	must[uint64](t)(m.Ledger.Write(ctx, Record(0, "taken over"), first))
	_, err := m.Ledger.Write(ctx, Record(0, "a"), 0)
	wantError(t, err, job.ErrConflict)
}

// outcomeAtItsFence checks that a worker that lost its claim cannot record any outcome.
func outcomeAtItsFence(t *testing.T, m Memory) {
	ctx := limited(t)
	for i, state := range []job.State{job.Succeeded, job.Failed, job.Skipped, job.Missed, job.Expired, job.Cancelled} {
		fence := must[uint64](t)(m.Ledger.Write(ctx, Record(i, "claim"), 0))
		taken := must[uint64](t)(m.Ledger.Write(ctx, Record(i, "taken over"), fence))
		outcome := Record(i, "outcome")
		outcome.State, outcome.Finished = state, at
		_, err := m.Ledger.Write(ctx, outcome, fence)
		wantError(t, err, job.ErrConflict)
		if stands, revision, err := m.Ledger.Read(ctx, outcome.Slot); err != nil || revision != taken || stands.Nonce != "taken over" {
			t.Errorf("%s: %q stands at %d, %v; want the claim that took over, at %d", state, stands.Nonce, revision, err, taken)
		}
	}
}

func withoutNonce(t *testing.T, m Memory) {
	_, err := m.Ledger.Write(limited(t), Record(0, ""), 0)
	wantError(t, err, job.ErrInvalid)
}

func unknownFields(t *testing.T, m Memory) {
	ctx := limited(t)
	r := Record(0, "a")
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

func revisionOfNothing(t *testing.T, m Memory) {
	_, err := m.Ledger.Write(limited(t), Record(0, "a"), 7)
	wantError(t, err, job.ErrConflict)
}

// Node returns the record of a live node.
func Node(name, nonce string) core.Node {
	return core.Node{Name: name, State: core.NodeAlive, Started: at, Lease: 20 * time.Second, Worker: true, Nonce: nonce}
}

func nodesWatched(t *testing.T, m Memory) {
	ctx, cancel := context.WithCancel(limited(t))
	must[uint64](t)(m.Nodes.Write(ctx, Node("old", "a"), 0))
	events, ended := make(chan core.NodeEvent, 100), make(chan error, 1)
	go func() { ended <- m.Nodes.Watch(ctx, func(e core.NodeEvent) { events <- e }) }()

	if e := next(t, ctx, events); e.Name != "old" || e.Node.State != core.NodeAlive || e.Err != nil {
		t.Fatalf("first event %+v", e)
	}
	if e := next(t, ctx, events); !e.Ready {
		t.Fatalf("second event %+v, want Ready", e)
	}
	one := must[uint64](t)(m.Nodes.Write(ctx, Node("new", "b"), 0))
	if e := next(t, ctx, events); e.Name != "new" || e.Revision != one || e.Time.IsZero() {
		t.Fatalf("event %+v, want new at %d", e, one)
	}
	fenced := Node("new", "c")
	fenced.State, fenced.FencedBy = core.NodeFenced, "old"
	two := must[uint64](t)(m.Nodes.Write(ctx, fenced, one))
	if e := next(t, ctx, events); e.Revision != two || e.Node.State != core.NodeFenced || e.Node.FencedBy != "old" {
		t.Fatalf("event %+v, want fenced at %d", e, two)
	}
	_, err := m.Nodes.Write(ctx, Node("new", "late heartbeat"), one)
	wantError(t, err, job.ErrConflict)
	if got, rev, err := m.Nodes.Read(ctx, "new"); err != nil || rev != two || got.State != core.NodeFenced {
		t.Fatalf("read %+v at %d, %v", got, rev, err)
	}
	if all := must[[]core.NodeEvent](t)(m.Nodes.List(ctx)); len(all) != 2 || all[0].Name != "old" || all[1].Name != "new" {
		t.Fatalf("list %+v", all)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatalf("the watch ended with %v, want nil", err)
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

// Definition returns the definition of a job.
func Definition(name, nonce string) core.Definition {
	return core.Definition{Job: job.Job{Name: name, Schedule: "0 7 * * *"}.WithDefaults(), Owner: "file", Node: "n1", Nonce: nonce}
}

func jobsDeleted(t *testing.T, m Memory) {
	ctx := limited(t)
	must[uint64](t)(m.Jobs.Write(ctx, Definition("a", "1"), 0))
	rev := must[uint64](t)(m.Jobs.Write(ctx, Definition("b", "2"), 0))
	for { // a list is a hint: any replica may answer
		all := must[[]core.Entry](t)(m.Jobs.List(ctx))
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
		t.Fatalf("revision %d after the removal of %d: what stands there has a later one", marker, rev)
	}
	_, err = m.Jobs.Write(ctx, Definition("b", "3"), rev)
	wantError(t, err, job.ErrConflict)
	if again := must[uint64](t)(m.Jobs.Write(ctx, Definition("b", "4"), marker)); again <= marker {
		t.Fatalf("created again at %d, over the marker %d", again, marker)
	}
	got, _, err := m.Jobs.Read(ctx, "b")
	if err != nil || got.Nonce != "4" || got.Job.Schedule != "0 7 * * *" {
		t.Fatalf("read %+v, %v", got, err)
	}
}

func jobsWatched(t *testing.T, m Memory) {
	ctx, cancel := context.WithCancel(limited(t))
	events, ended := make(chan core.RegistryEvent, 1000), make(chan error, 1)
	go func() {
		ended <- m.Jobs.Watch(ctx, func(e core.RegistryEvent) {
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
		must[uint64](t)(m.Jobs.Write(ctx, Definition(fmt.Sprintf("j%02d", i), "1"), 0))
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

func jobBroken(t *testing.T, m Memory) {
	ctx, cancel := context.WithCancel(limited(t))
	broken := Definition("broken", "1")
	broken.Job.Schedule = "61 * * * *"
	rev := must[uint64](t)(m.Jobs.Write(ctx, broken, 0))
	must[uint64](t)(m.Jobs.Write(ctx, Definition("good", "2"), 0))
	check := func(how string, err error) {
		t.Helper()
		var e *core.EntryError
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
	for len(entries) != 1 && ctx.Err() == nil { // a list is a hint: a replica may lag
		entries, err = m.Jobs.List(ctx)
	}
	check("list", err)
	if len(entries) != 1 || entries[0].Job.Name != "good" {
		t.Fatalf("list %+v, want the good one", entries)
	}
	events, ended := make(chan core.RegistryEvent, 10), make(chan error, 1)
	go func() { ended <- m.Jobs.Watch(ctx, func(e core.RegistryEvent) { events <- e }) }()
	check("watch", next(t, ctx, events).Err)
	if e := next(t, ctx, events); e.Name != "good" || e.Err != nil {
		t.Fatalf("after it the watch tells %+v", e)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func watermark(t *testing.T, m Memory) {
	ctx := limited(t)
	_, rev, err := m.Watermark.Read(ctx)
	wantError(t, err, job.ErrNotFound)
	rev = must[uint64](t)(m.Watermark.Write(ctx, core.Watermark{Time: at, Revision: 3, Node: "n1", Nonce: "a"}, rev))
	_, err = m.Watermark.Write(ctx, core.Watermark{Time: at, Revision: 3, Node: "n2", Nonce: "b"}, 0)
	wantError(t, err, job.ErrConflict)
	must[uint64](t)(m.Watermark.Write(ctx, core.Watermark{Time: at.Add(time.Second), Revision: 4, Node: "n2", Nonce: "c"}, rev))
	got, _, err := m.Watermark.Read(ctx)
	if err != nil || !got.Time.Equal(at.Add(time.Second)) || got.Revision != 4 || !strings.HasPrefix(got.Node, "n2") {
		t.Fatalf("read %+v, %v", got, err)
	}
}

func locks(t *testing.T, m Memory) {
	ctx := limited(t)
	_, rev, err := m.Locks.Read(ctx, "report")
	wantError(t, err, job.ErrNotFound)
	held := core.Lock{Job: "report", Nonce: "a", Holders: []core.LockSlot{{Slot: Record(0, "").Slot, At: at, OnTime: true, Since: at}}}
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
