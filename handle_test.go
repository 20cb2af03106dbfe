package cronce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// stored opens the namespace beside the schedulers.
func stored(t *testing.T, srv *natstest.Server) *kv.Store {
	t.Helper()
	store := kvtest.Open(t, srv.JetStream(), kv.Options{ReadOnly: true})
	return store
}

// someday is a job that runs only when it is triggered.
func someday(name string) job.Job { return job.Job{Name: name, Schedule: "@at 2100-01-01T00:00:00Z"} }

// trigger orders a run once the job is in the registry.
func trigger(t *testing.T, s *cronce.Scheduler, name, payload string) job.Slot {
	t.Helper()
	var ordered client.Run
	natstest.Eventually(t, "the job "+name+" in the registry", func() (ok bool) {
		var err error
		ordered, err = s.Trigger(t.Context(), name, cronce.TriggerOptions{Payload: []byte(payload)})
		if err != nil && !errors.Is(err, job.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
	return ordered.Slot
}

// outcome waits for the outcome of a slot.
func outcome(t *testing.T, store *kv.Store, s job.Slot) job.Record {
	t.Helper()
	var r job.Record
	natstest.Eventually(t, s.ID()+" to end", func() bool {
		var err error
		r, _, err = store.Ledger().Read(t.Context(), s)
		if err != nil && !errors.Is(err, job.ErrNotFound) {
			t.Fatal(err)
		}
		return r.State.Final()
	})
	return r
}

type invoice struct {
	Customer string `json:"customer"`
	Items    []struct {
		Price float64 `json:"price"`
	} `json:"items"`
}

func TestHandleFuncDecodesThePayloadOrFailsForGoodWithTheMembersName(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv)
	got := make(chan invoice, 10)
	err := cronce.HandleFunc(s, someday("charge"), func(_ context.Context, run job.Run, in invoice) error {
		if run.Slot.Job != "charge" {
			return fmt.Errorf("run %+v", run)
		}
		got <- in
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	running(t, s)
	store := stored(t, srv)
	if r := outcome(t, store, trigger(t, s, "charge", `{"customer":"ann","items":[{"price":1.5}]}`)); r.State != job.Succeeded {
		t.Errorf("%s: %s", r.State, r.Error)
	}
	if in := <-got; in.Customer != "ann" || len(in.Items) != 1 || in.Items[0].Price != 1.5 {
		t.Errorf("got %+v", in)
	}
	if r := outcome(t, store, trigger(t, s, "charge", "")); r.State != job.Succeeded {
		t.Errorf("without a payload: %s: %s", r.State, r.Error)
	}
	if in := <-got; in.Customer != "" || in.Items != nil {
		t.Errorf("without a payload: %+v, want the zero value", in)
	}
	r := outcome(t, store, trigger(t, s, "charge", `{"items":[{},{},{},{"price":"free"}]}`))
	if r.State != job.Failed || r.Attempt != 1 || r.Error != "invalid payload: items[3].price: got string, want float64" {
		t.Errorf("%s at attempt %d: %s", r.State, r.Attempt, r.Error)
	}
	if len(got) > 0 {
		t.Errorf("the function was called with %+v", <-got)
	}
	if err := cronce.HandleFunc[int](s, someday("none"), nil); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("a nil function: %v", err)
	}
}

func TestWithPriorityIsThePriorityOfTheWorker(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv, cronce.WithPriority(5))
	handle(t, s, someday("report"), nothing)
	defer running(t, s)()
	store := stored(t, srv)
	natstest.Eventually(t, "a node of priority 5", func() bool { return liveNode(t, store).Priority == 5 })

	// With that priority it asks for slots, too: it is the only one, so it gets them.
	slot := trigger(t, s, "report", "")
	if r := outcome(t, store, slot); r.State != job.Succeeded {
		t.Errorf("the slot is %s", r.State)
	}
}

// liveNode returns the record of the one live node.
func liveNode(t *testing.T, store *kv.Store) (n exchange.Node) {
	t.Helper()
	all, err := store.Nodes().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Node.State == exchange.NodeAlive {
			n = e.Node
		}
	}
	return n
}

// listed returns the jobs in the node's list of handlers.
func listed(t *testing.T, store *kv.Store, node string) []string {
	t.Helper()
	list, _, err := store.HandlerLists().Read(t.Context(), node)
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		t.Fatal(err)
	}
	return list.Jobs
}

func TestHandleAfterRunBeginsTheJobAndItsQueue(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv)
	handle(t, s, everySecond("first"), nothing)
	stop := running(t, s)
	natstest.Eventually(t, "the replica to be ready", func() bool { return s.Ready() == nil })
	ran := make(chan job.Run, 100)
	late := everySecond("late")
	late.Queue = "reports"
	handle(t, s, late, func(_ context.Context, run job.Run) error { ran <- run; return nil })
	if err := s.Handle(late, nothing); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("a second handler: %v", err)
	}
	if run := wait(t, ran, "a slot of the late job"); run.Slot.Job != "late" || run.Queue != "reports" || run.Fence == 0 {
		t.Errorf("ran %+v", run)
	}
	store := stored(t, srv)
	e, _, err := store.Jobs().Read(t.Context(), "late")
	if err != nil || e.Owner != plans.OwnerCode {
		t.Errorf("the registry has %+v, %v", e, err)
	}
	natstest.Eventually(t, "the record to follow", func() bool {
		n := liveNode(t, store)
		return slices.Equal(listed(t, store, n.Name), []string{"first", "late"}) && slices.Equal(n.Queues, []string{"default", "reports"})
	})
	stop()
	if err := s.Handle(everySecond("later"), nothing); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("after the end of Run: %v", err)
	}
}

func TestHandleMakesAWorkerOfAReplicaThatBeganWithoutJobs(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv, cronce.WithGrace(time.Millisecond))
	running(t, s)
	natstest.Eventually(t, "the replica to be ready", func() bool { return s.Ready() == nil })
	began := make(chan struct{}, 1)
	handle(t, s, someday("report"), func(ctx context.Context, _ job.Run) error {
		began <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	slot := trigger(t, s, "report", "")
	wait(t, began, "the slot to start")
	// The node answers requests about its claims.
	store := stored(t, srv)
	r, revision, err := store.Ledger().Read(t.Context(), slot)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the worker to answer", func() bool {
		answer, err := store.AskHolds(t.Context(), r.Node, slot, revision)
		return err == nil && answer.Holds
	})
}

func TestRemoveLetsARunningSlotEndAndKeepsTheRegistrysEntry(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv, cronce.WithGrace(time.Millisecond)) // the grace is for stopping only
	began, release := make(chan struct{}, 10), make(chan struct{})
	handler := func(ctx context.Context, run job.Run) error {
		began <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	report := someday("report")
	report.Queue = "reports"
	if err := errors.Join(s.Handle(someday("other"), nothing), s.Handle(report, handler)); err != nil {
		t.Fatal(err)
	}
	running(t, s)
	store := stored(t, srv)
	first := trigger(t, s, "report", "")
	wait(t, began, "the slot to start")
	if err := s.Remove("report"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("report"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("a second Remove: %v", err)
	}
	natstest.Eventually(t, "the record to follow", func() bool {
		n := liveNode(t, store)
		return slices.Equal(listed(t, store, n.Name), []string{"other"}) && slices.Equal(n.Queues, []string{"default"})
	})
	e, _, err := store.Jobs().Read(t.Context(), "report")
	if err != nil || e.Owner != plans.OwnerCode {
		t.Errorf("the registry has %+v, %v, want the job and its owner as before", e, err)
	}
	second := trigger(t, s, "report", "")
	close(release)
	if r := outcome(t, store, first); r.State != job.Succeeded {
		t.Errorf("the slot that ran is %s: %s", r.State, r.Error)
	}
	outcome(t, store, trigger(t, s, "other", "")) // the replica goes on
	if _, _, err := store.Ledger().Read(t.Context(), second); !errors.Is(err, job.ErrNotFound) || len(began) > 0 {
		t.Errorf("the slot after Remove has a record: %v", err)
	}
	handle(t, s, report, handler)
	if r := outcome(t, store, second); r.State != job.Succeeded {
		t.Errorf("after Handle the slot that waited is %s: %s", r.State, r.Error)
	}
}

// An old process that starts again must not revert an edit, but a program may change a job back.
func TestHandleBringsAnEarlierDefinitionBackIfItReplacesAnotherOne(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv)
	running(t, s)
	store := stored(t, srv)
	schedule := func(want string) {
		t.Helper()
		natstest.Eventually(t, "the schedule "+want+" in the registry", func() bool {
			e, _, err := store.Jobs().Read(t.Context(), "sync")
			return err == nil && e.Job.Schedule == want
		})
	}
	for i, at := range []string{"@hourly", "@daily", "@hourly", "@daily"} {
		if i > 0 {
			if err := s.Remove("sync"); err != nil {
				t.Fatal(err)
			}
		}
		handle(t, s, job.Job{Name: "sync", Schedule: at}, nothing)
		schedule(at)
	}

	old, _ := scheduler(t, srv)
	running(t, old)
	for range 2 { // the same definition again is no edit
		handle(t, old, job.Job{Name: "sync", Schedule: "@hourly"}, nothing)
		if _, err := old.Trigger(t.Context(), "sync", cronce.TriggerOptions{}); err != nil { // it waits for the registry
			t.Fatal(err)
		}
		schedule("@daily")
		if err := old.Remove("sync"); err != nil {
			t.Fatal(err)
		}
	}
}

// A program that always changes a job soon after its start may be in a crash loop.
func TestHandleRevertsNoLaterEditOfAnotherProgram(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	later, _ := scheduler(t, srv)
	running(t, later)
	store := stored(t, srv)
	schedule := func() string {
		e, _, _ := store.Jobs().Read(t.Context(), "sync")
		return e.Job.Schedule
	}
	handle := func(s *cronce.Scheduler, at string) {
		t.Helper()
		handle(t, s, job.Job{Name: "sync", Schedule: at}, nothing)
		if _, err := s.Trigger(t.Context(), "sync", cronce.TriggerOptions{}); err != nil { // it waits for the registry
			t.Fatal(err)
		}
	}
	start := func() {
		t.Helper()
		s, _ := scheduler(t, srv)
		stop := running(t, s)
		handle(s, "@hourly")
		if err := s.Remove("sync"); err != nil {
			t.Fatal(err)
		}
		handle(s, "@daily")
		stop()
	}
	start()
	if at := schedule(); at != "@daily" {
		t.Fatalf("after the first start the schedule is %s, want @daily", at)
	}
	handle(later, "@weekly")
	start()
	if at := schedule(); at != "@weekly" {
		t.Errorf("after the second start the schedule is %s: a start has reverted a later edit", at)
	}
}

// The process tries a job that the registry refuses again and again.
func TestHandleWritesEachEditOnceAlthoughAnotherJobIsRefused(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, func(o *server.Options) { o.MaxPayload = 64 << 10 })
	said := make(chan string, 100)
	s, _ := scheduler(t, srv, cronce.WithLogger(slog.New(slog.NewTextHandler(lines(said), nil))))
	running(t, s)
	other, _ := scheduler(t, srv)
	running(t, other)
	store := stored(t, srv)
	schedule := func() string {
		e, _, _ := store.Jobs().Read(t.Context(), "sync")
		return e.Job.Schedule
	}
	sync := func(s *cronce.Scheduler, at string) {
		t.Helper()
		handle(t, s, job.Job{Name: "sync", Schedule: at}, nothing)
		natstest.Eventually(t, "the schedule "+at+" in the registry", func() bool { return schedule() == at })
	}
	refused := func(at string) {
		t.Helper()
		large := job.Job{Name: "large", Schedule: at, Payload: []byte(`"` + strings.Repeat("x", 80<<10) + `"`)}
		handle(t, s, large, nothing)
	}
	remove := func(name string) {
		t.Helper()
		if err := s.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	refused("@hourly")
	sync(s, "@hourly")
	remove("sync")
	sync(s, "@daily")

	remove("large")
	refused("@daily") // an edit
	remove("sync")
	sync(s, "@hourly")
	sync(other, "@weekly")
	for len(said) > 0 {
		<-said
	}
	for tries := 0; tries < 3; {
		select {
		case line := <-said:
			if strings.Contains(line, "cannot apply the added jobs") {
				tries++
			}
		case <-time.After(natstest.Patience):
			t.Fatal("the refused job is not tried again")
		}
	}
	if at := schedule(); at != "@weekly" {
		t.Errorf("the schedule is %s: an edit was written again over a later one", at)
	}
}

func TestHandleAndRemoveMayBeCalledConcurrently(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv)
	running(t, s)
	var ran sync.Map
	var done sync.WaitGroup
	for i := range 8 {
		done.Go(func() {
			j := everySecond(fmt.Sprint("job", i))
			j.Queue = fmt.Sprint("queue", i%3)
			for range 5 {
				if err := s.Handle(j, func(_ context.Context, run job.Run) error { ran.Store(run.Slot.Job, true); return nil }); err != nil {
					t.Error(err)
				}
				if err := s.Remove(j.Name); err != nil {
					t.Error(err)
				}
			}
			if err := s.Handle(j, func(_ context.Context, run job.Run) error { ran.Store(run.Slot.Job, true); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	natstest.Eventually(t, "all jobs to run", func() bool {
		n := 0
		ran.Range(func(any, any) bool { n++; return true })
		return n == 8
	})
}

func TestHandleDoesNotWaitForTheBroker(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv)
	handle(t, s, everySecond("first"), nothing)
	running(t, s)
	natstest.Eventually(t, "the replica to be ready", func() bool { return s.Ready() == nil })
	srv.Stop()
	ran := make(chan job.Run, 100)
	handled := make(chan error)
	go func() {
		handled <- s.Handle(everySecond("late"), func(_ context.Context, run job.Run) error { ran <- run; return nil })
	}()
	if err := wait(t, handled, "Handle to return"); err != nil {
		t.Fatal(err)
	}
	srv.Start()
	wait(t, ran, "a slot of the late job")
}

func TestQueueConcurrencyBoundsOneQueue(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv, cronce.WithConcurrency(4), cronce.WithQueueConcurrency("narrow", 2))
	var mu sync.Mutex
	now, most := map[string]int{}, map[string]int{}
	full, release := make(chan struct{}), make(chan struct{})
	reached := sync.OnceFunc(func() { close(full) })
	handler := func(_ context.Context, run job.Run) error {
		mu.Lock()
		now[run.Queue]++
		most[run.Queue] = max(most[run.Queue], now[run.Queue])
		if now["narrow"] >= 2 && now["wide"] >= 4 {
			reached()
		}
		mu.Unlock()
		<-release
		mu.Lock()
		defer mu.Unlock()
		now[run.Queue]--
		return nil
	}
	for _, queue := range []string{"narrow", "wide"} {
		j := someday(queue)
		j.Queue, j.Overlap = queue, job.OverlapAllow
		handle(t, s, j, handler)
	}
	running(t, s)
	var slots []job.Slot
	for range 10 {
		slots = append(slots, trigger(t, s, "narrow", ""), trigger(t, s, "wide", ""))
	}
	wait(t, full, "two and four handlers to run at once")
	close(release)
	store := stored(t, srv)
	for _, slot := range slots {
		outcome(t, store, slot)
	}
	mu.Lock()
	defer mu.Unlock()
	if most["narrow"] != 2 || most["wide"] != 4 {
		t.Errorf("at most %v handlers ran at once, want 2 in the narrow queue and 4 in the wide one", most)
	}
}

func TestTriggerWaitsForAJobThatHandleHasJustAdded(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv, cronce.WithGrace(time.Millisecond))
	running(t, s)
	natstest.Eventually(t, "the replica to be ready", func() bool { return s.Ready() == nil })
	for i := range 20 {
		name := fmt.Sprint("job", i)
		handle(t, s, someday(name), nothing)
		run, err := s.Trigger(t.Context(), name, cronce.TriggerOptions{})
		if err != nil || run.Slot.Job != name {
			t.Fatalf("%+v, %v", run, err)
		}
	}
	srv.Stop()
	handle(t, s, someday("away"), nothing)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Trigger(ctx, "away", cronce.TriggerOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the broker is away: %v", err)
	}
	srv.Start()
}
