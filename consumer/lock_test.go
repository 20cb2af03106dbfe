package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

// fleet is several consumers on one queue, one ledger, and one set of locks and lines.
type fleet struct {
	*testing.T
	benches []*bench
	runs    *runs
}

// runs records what handlers did, in order.
type runs struct {
	mu     sync.Mutex
	events []string
	now    map[string]int // running, by job
	most   map[string]int
}

func (r *runs) note(what string, run job.Run, change int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, what+" "+run.Slot.At.Format("05"))
	r.now[run.Slot.Job] += change
	r.most[run.Slot.Job] = max(r.most[run.Slot.Job], r.now[run.Slot.Job])
}

func (r *runs) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// newFleet returns n nodes, each with a handler for job j that runs for d, or until its
// context ends.
func newFleet(t *testing.T, n int, j job.Job, d time.Duration) *fleet {
	f := &fleet{T: t, runs: &runs{now: map[string]int{}, most: map[string]int{}}}
	first := newBench(t)
	store := memstore.New()
	for i := range n {
		b := newBench(t)
		b.queue, b.ledger = first.queue, first.ledger
		b.node = newNode(string(rune('A' + i)))
		b.cfg.Node, b.cfg.Ledger, b.cfg.Locks, b.cfg.Lines = b.node, b.ledger, store.Locks(), store.Lines()
		b.cfg.Cancel = f.cancel
		b.handle(j, func(ctx context.Context, run job.Run) error {
			f.runs.note("start", run, 1)
			defer f.runs.note("end", run, -1)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(d):
				return nil
			}
		})
		f.benches = append(f.benches, b)
	}
	return f
}

func (f *fleet) cancel(_ context.Context, node string, r core.CancelRequest) {
	slot, _ := job.ParseSlotID(r.ID)
	for _, b := range f.benches {
		if b.node.name == node {
			b.cfg.Table.Cancel(slot.Key(), r.Fence, r.Cause())
		}
	}
}

// run starts all consumers and returns a function that stops them.
func (f *fleet) run() (stop func()) {
	var stops []func() error
	for _, b := range f.benches {
		stops = append(stops, b.run())
	}
	return func() {
		for _, s := range stops {
			_ = s()
		}
	}
}

func (f *fleet) publish() job.Slot { return f.benches[0].publish("report") }

func (f *fleet) want(s job.Slot, state job.State, text string) {
	f.Helper()
	if r := f.benches[0].record(s); r.State != state || !strings.Contains(r.Error, text) {
		f.Errorf("%s is %s (%s), want %s (%s)", s, r.State, r.Error, state, text)
	}
}

func TestASkippedSlotSaysWhichSlotWasInItsWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, job.Job{Name: "report", Overlap: job.OverlapSkip}, 1500*time.Millisecond)
		stop := f.run()
		first := f.publish()
		time.Sleep(time.Second)
		second := f.publish()
		time.Sleep(time.Second)
		third := f.publish()
		time.Sleep(3 * time.Second)
		stop()
		f.want(first, job.Succeeded, "")
		f.want(second, job.Skipped, first.ID())
		f.want(third, job.Succeeded, "")
	})
}

func TestQueuedSlotsRunOneAfterTheOtherInTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, job.Job{Name: "report", Overlap: job.OverlapQueue}, 2500*time.Millisecond)
		stop := f.run()
		var slots []job.Slot
		began := time.Now()
		for range 5 {
			slots = append(slots, f.publish())
			time.Sleep(time.Second)
		}
		for len(f.runs.said()) < 10 {
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(began)
		stop()
		var want []string
		for _, s := range slots {
			f.want(s, job.Succeeded, "")
			want = append(want, "start "+s.At.Format("05"), "end "+s.At.Format("05"))
		}
		if got := f.runs.said(); !slices.Equal(got, want) {
			t.Errorf("ran %q, want %q", got, want)
		}
		if most := 5*2500*time.Millisecond + 500*time.Millisecond; took > most {
			t.Errorf("took %v, want no pause between them", took)
		}
	})
}

func TestConcurrencyIsCountedOverTheFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, job.Job{Name: "report", Overlap: job.OverlapAllow, Concurrency: 2}, 3500*time.Millisecond)
		stop := f.run()
		for range 12 {
			f.publish()
			time.Sleep(time.Second)
		}
		for len(f.runs.said()) < 24 {
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		if most := f.runs.most["report"]; most != 2 {
			t.Errorf("%d ran at once, want 2", most)
		}
	})
}

// The lock has changed since the node wrote it. The slot leaves the changed lock, so a slot that was
// admitted meanwhile stays in it.
func TestLeavingALockLeavesOtherSlotsInIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, job.Job{Name: "report", Overlap: job.OverlapAllow, Concurrency: 2}, 3500*time.Millisecond)
		a, b := f.benches[0], f.benches[1]
		a.cfg.Concurrency = 1
		stopA := a.run()
		f.publish()
		time.Sleep(time.Second)
		stopB := b.run()
		f.publish() // a has no place for it, so that the lock moves on without a
		time.Sleep(2600 * time.Millisecond)
		for range 2 { // the first has ended, the second has not
			f.publish()
			time.Sleep(500 * time.Millisecond)
		}
		for len(f.runs.said()) < 8 {
			time.Sleep(10 * time.Millisecond)
		}
		_, _ = stopA(), stopB()
		if most := f.runs.most["report"]; most != 2 {
			t.Errorf("%d ran at once, want 2: %q", most, f.runs.said())
		}
	})
}

// The slot holds the lock, not its node.
func TestADeadOwnerFreesNothingAndItsSlotIsResumedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, job.Job{Name: "report", Overlap: job.OverlapQueue}, 5*time.Second)
		a, b := f.benches[0], f.benches[1]
		_ = a.run()
		first := f.publish()
		time.Sleep(time.Second)
		a.node.lose(job.ErrLeaseLost)
		b.node.kill("A")
		stop := b.run()
		second := f.publish()
		for len(f.runs.said()) < 6 {
			time.Sleep(100 * time.Millisecond)
		}
		_ = stop()
		f.want(first, job.Succeeded, "")
		f.want(second, job.Succeeded, "")
		at := func(s job.Slot) string { return s.At.Format("05") }
		want := []string{"start " + at(first), "end " + at(first), "start " + at(first), "end " + at(first), "start " + at(second), "end " + at(second)}
		if got := f.runs.said(); !slices.Equal(got, want) {
			t.Errorf("ran %q, want %q", got, want)
		}
	})
}

func TestReplaceEndsTheOlderHandlerBeforeTheNewerOneStarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, job.Job{Name: "report", Overlap: job.OverlapReplace}, 3*time.Second)
		stop := f.run()
		first := f.publish()
		time.Sleep(1500 * time.Millisecond)
		second, came := f.publish(), time.Now()
		for len(f.runs.said()) < 3 {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(came); took > time.Second {
			t.Errorf("the newer one started after %v", took)
		}
		time.Sleep(4 * time.Second)
		stop()
		f.want(first, job.Cancelled, "replaced by "+second.ID())
		f.want(second, job.Succeeded, "")
		at := func(s job.Slot) string { return s.At.Format("05") }
		if got, want := f.runs.said(), []string{"start " + at(first), "end " + at(first), "start " + at(second), "end " + at(second)}; !slices.Equal(got, want) {
			t.Errorf("ran %q, want %q", got, want)
		}
	})
}

// A slot that waits for its next attempt has no owner: any worker may end it.
func TestReplaceEndsASlotThatWaitsForItsNextAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapReplace, Retry: job.Retry{Backoff: time.Hour, MaxBackoff: time.Hour}}, 0)
		b := f.benches[0]
		b.handlers["report"] = func(_ context.Context, run job.Run) error {
			if f.runs.note("start", run, 0); len(f.runs.said()) == 1 {
				return errors.New("no")
			}
			return nil
		}
		stop := b.run()
		first := f.publish()
		time.Sleep(time.Second)
		second := f.publish()
		time.Sleep(time.Second)
		_ = stop()
		f.want(first, job.Cancelled, "replaced by "+second.ID())
		f.want(second, job.Succeeded, "")
	})
}

func TestSlotsThatWaitTakeNothingInTheWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapQueue}, time.Hour)
		b := f.benches[0]
		b.cfg.Grace = -1
		b.handle(job.Job{Name: "other"}, func(context.Context, job.Run) error { return nil })
		stop := b.run()
		first := f.publish()
		time.Sleep(time.Second)
		var waiting []job.Slot
		for i := range 500 {
			s := job.Slot{Job: "report", Token: fmt.Sprint("t", i)}
			waiting = append(waiting, s)
			b.queue.add(core.Message{Slot: s, JobRevision: 1})
		}
		other := b.publish("other")
		time.Sleep(5 * time.Second)
		f.want(other, job.Succeeded, "")
		for _, s := range waiting {
			f.want(s, job.Waiting, "")
		}
		b.queue.mu.Lock()
		if b.queue.out != 1 {
			t.Errorf("%d messages are not answered, want that of the slot that runs", b.queue.out)
		}
		b.queue.mu.Unlock()
		if n := b.cfg.Table.Size(); n != 1 {
			t.Errorf("the worker works on %d slots, want on %s only", n, first)
		}
		for _, v := range b.queue.verdicts() {
			if !strings.HasPrefix(v, "ack ") {
				t.Errorf("a slot was given back: %s", v)
			}
		}
		_ = stop()
	})
}

// A slot that waits past its start deadline expires when its turn comes, without taking the place.
func TestASlotThatIsTooLateWhenItsTurnComesExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapQueue, Deadline: 3 * time.Second}, 10*time.Second)
		b := f.benches[0]
		stop := b.run()
		f.publish()
		time.Sleep(time.Second)
		late := f.publish()
		time.Sleep(8500 * time.Millisecond)
		inTime := f.publish()
		time.Sleep(20 * time.Second)
		_ = stop()
		f.want(late, job.Expired, "deadline")
		f.want(inTime, job.Succeeded, "")
		if l, _, err := b.cfg.Locks.Read(t.Context(), "report"); err != nil || len(l.Holders) > 0 || l.Waiting {
			t.Errorf("the lock is %+v, %v, want it free", l, err)
		}
	})
}

func TestACrowdFollowsWithoutPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, job.Job{Name: "report", Overlap: job.OverlapQueue}, 10*time.Millisecond)
		for range 700 {
			f.benches[0].queue.add(core.Message{Slot: job.Slot{Job: "report", Token: fmt.Sprint(len(f.benches[0].queue.ready))}, JobRevision: 1})
		}
		stop := f.run()
		began := time.Now()
		for range 100_000 {
			if len(f.runs.said()) == 1400 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(began)
		stop()
		if n := len(f.runs.said()); n != 1400 || f.runs.most["report"] != 1 {
			t.Errorf("%d starts and ends, at most %d at once", n, f.runs.most["report"])
		}
		if took > 60*time.Second {
			t.Errorf("700 runs of 10 ms took %v", took)
		}
	})
}

// A slot that has waited for its lock needs a permit like any other: a worker with many
// guarded jobs, all with slots that wait, runs no more than its limit.
func TestSlotsWhoseTurnHasComeRunInNoMorePlacesThanThereAre(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const jobs, each = 12, 6
		b := newBench(t)
		var running, most, ran atomic.Int32
		for i := range jobs {
			b.handle(job.Job{Name: fmt.Sprint("job", i), Overlap: job.OverlapQueue}, func(context.Context, job.Run) error {
				n := running.Add(1)
				most.Store(max(most.Load(), n))
				time.Sleep(time.Second)
				running.Add(-1)
				ran.Add(1)
				return nil
			})
		}
		b.ledger.after = func(job.Record) { time.Sleep(10 * time.Millisecond) } // the way to the broker
		at := time.Now()
		for i := range jobs {
			for n := range each {
				s := job.NewSlot(fmt.Sprint("job", i), at.Add(time.Duration(n)*time.Second))
				b.queue.add(core.Message{Slot: s, JobRevision: 1, Due: at})
			}
		}
		stop := b.run()
		began := time.Now()
		for range 100_000 {
			if ran.Load() == jobs*each {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(began)
		_ = stop()
		if got := int(most.Load()); got > b.cfg.Concurrency {
			t.Errorf("%d handlers ran at once, in %d places", got, b.cfg.Concurrency)
		}
		if ideal := jobs * each * time.Second / time.Duration(b.cfg.Concurrency); took > 2*ideal {
			t.Errorf("%d runs took %v, in the ideal case %v", ran.Load(), took, ideal)
		}
	})
}
