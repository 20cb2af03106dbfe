package consumer

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// Table holds every slot that this process works on, from before its claim until its task is
// closed. One table serves all queues and all incarnations of a process.
//
// Invariants:
//   - A slot is in the table at most once. So two deliveries of one slot to one process never
//     compete for its claim.
//   - A slot stays in the table until its handler has returned, even after its incarnation has
//     ended. So a new incarnation does not take over a slot whose handler an older incarnation
//     of the same process still runs.
//
// It is safe for concurrent use.
type Table struct {
	writes atomic.Uint64

	mu      sync.Mutex
	entries map[string]entry // by slot key
	changed chan struct{}    // closed at the next change; nil: waitFor is not waiting

	limiters map[string]*limiter // by queue
}

// entry is the state of one slot in the table.
type entry struct {
	node     string      // the incarnation that took the slot
	attempt  *attemptRef // nil before the handler runs
	returned bool        // the handler has returned

	// recordsAfterLease: the handler returned before the lease ended, or may outlive it. So the
	// worker writes its result even after the lease.
	recordsAfterLease bool

	// endSeen is when Table.Stuck first saw that the handler's context had ended. stuck:
	// Table.Stuck has returned the handler.
	endSeen time.Time
	stuck   bool

	// abandoned: the task is closed, and no result of the attempt could be written. Until the slot
	// is past the horizon, it stays in the table: see task.fail.
	abandoned bool
}

// runs reports whether the handler has started and not returned.
func (o entry) runs() bool { return o.attempt != nil && !o.returned }

// outlives reports whether the handler, or the write of its result, may outlive its incarnation.
func (o entry) outlives() bool { return o.attempt != nil && (o.attempt.finish || o.recordsAfterLease) }

// attemptRef is what the table knows of an attempt.
type attemptRef struct {
	fence uint64
	ctx   context.Context
	end   context.CancelCauseFunc

	finish bool // the handler may outlive its incarnation

	reports *reports
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{entries: map[string]entry{}, limiters: map[string]*limiter{}}
}

// limiter returns the queue's limiter, which all incarnations of the process share: a
// handler that outlives its incarnation keeps its permit.
func (t *Table) limiter(queue string, size int) *limiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.limiters[queue]
	if l == nil {
		l = newLimiter(size)
		t.limiters[queue] = l
	}
	return l
}

// Denied returns why no slots of the queue arrive here: this login may not ask for them
// (job.ErrDenied). It returns nil if the login may, or if no consumer has asked yet.
func (t *Table) Denied(queue string) error {
	t.mu.Lock()
	l := t.limiters[queue]
	t.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.denied()
}

// take enters a slot for node. If the slot is in the table already, take returns false and the
// node that took it.
func (t *Table) take(key, node string) (owner string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o, taken := t.entries[key]; taken {
		return o.node, false
	}
	t.entries[key] = entry{node: node}
	return node, true
}

// abandon notes that the task of the slot is closed without a result. No handler of it runs.
func (t *Table) abandon(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries[key] = entry{node: t.entries[key].node, abandoned: true}
	t.notify()
}

// retake enters an abandoned slot for node. It returns false if the slot is not abandoned.
func (t *Table) retake(key, node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.entries[key].abandoned {
		return false
	}
	t.entries[key] = entry{node: node}
	return true
}

func (t *Table) remove(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.entries, key)
	t.notify()
}

// notify wakes waitFor. t.mu is held.
func (t *Table) notify() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// waitFor waits until cond is true for every entry. It returns false if ctx ends first.
func (t *Table) waitFor(ctx context.Context, cond func(entry) bool) bool {
	for {
		t.mu.Lock()
		all := true
		for _, o := range t.entries {
			all = all && cond(o)
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		if all {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Finish waits for the handlers that have outlived their incarnations. When ctx ends, Finish
// ends their contexts with job.ErrStopping, and waits up to 5 s for them to return and for their
// results to be recorded. It does not wait for handlers whose contexts a Consumer has ended
// with job.ErrStopping. It is called when no Consumer runs any more.
func (t *Table) Finish(ctx context.Context) {
	gone := func(o entry) bool {
		return !o.outlives() || errors.Is(context.Cause(o.attempt.ctx), job.ErrStopping)
	}
	if t.waitFor(ctx, gone) {
		return
	}
	stopped := map[*attemptRef]bool{}
	t.mu.Lock()
	for _, o := range t.entries {
		if !gone(o) {
			o.attempt.end(job.ErrStopping)
			stopped[o.attempt] = true
		}
	}
	t.mu.Unlock()
	lingerCtx, cancel := context.WithTimeout(context.Background(), linger)
	defer cancel()
	t.waitFor(lingerCtx, func(o entry) bool { return !stopped[o.attempt] })
}

// Stuck is a handler that does not return.
type Stuck struct {
	Slot job.Slot

	// For is how long ago its context was seen to have ended, and Cause is why it ended.
	For   time.Duration
	Cause error
}

// Stuck returns the handlers that have not returned although their contexts ended more than
// grace ago. It returns each handler once. It notices the end of a context only when it is
// called, so call it often.
func (t *Table) Stuck(grace time.Duration) (found []Stuck) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, o := range t.entries {
		switch {
		case !o.runs() || o.stuck || o.attempt.ctx.Err() == nil:
			continue
		case o.endSeen.IsZero():
			o.endSeen = now
		case now.Sub(o.endSeen) > grace:
			o.stuck = true
			slot, _ := job.ParseSlotKey(key) // the key was made from a slot
			found = append(found, Stuck{slot, now.Sub(o.endSeen), context.Cause(o.attempt.ctx)})
		}
		t.entries[key] = o
	}
	return found
}

// CountStuck returns how many of the handlers that Stuck has returned still run.
func (t *Table) CountStuck() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.entries {
		if o.stuck && o.runs() {
			n++
		}
	}
	return n
}

// run notes the attempt that is about to start.
func (t *Table) run(key string, attempt *attemptRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.entries[key]
	o.attempt = attempt
	t.entries[key] = o
	t.notify()
}

// returned notes that the attempt's handler has returned: see entry.recordsAfterLease.
func (t *Table) returned(key string, recordsAfterLease bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.entries[key]
	o.returned, o.recordsAfterLease = true, recordsAfterLease
	t.entries[key] = o
	t.notify()
}

// running returns the slot's attempt if its handler runs, and nil otherwise.
func (t *Table) running(key string) *attemptRef {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.entries[key]; o.runs() {
		return o.attempt
	}
	return nil
}

// Cancel ends the context of the handler that runs the slot's attempt with this fence. It
// reports whether a cancellation has ended the context, by this cause or an earlier one (see
// core.IsCancellation). It is false if this process does not run the attempt now, or if the
// context had ended for another reason. Then the caller has to look at the record.
func (t *Table) Cancel(key string, fence uint64, cause error) bool {
	attempt := t.running(key)
	if attempt == nil || attempt.fence != fence {
		return false
	}
	attempt.end(cause)
	return core.IsCancellation(context.Cause(attempt.ctx))
}

// Holds reports whether the process works on the slot, and whether the slot's handler still runs
// although its context has ended. ended is also true for an abandoned slot: past the horizon,
// another worker may end it. If holds is false, this process starts a handler of the slot only
// after a new claim.
func (t *Table) Holds(key string) (holds, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, holds := t.entries[key]
	return holds, o.abandoned || o.runs() && o.attempt.ctx.Err() != nil
}

// Output returns what the slot's handler has reported so far, if this process runs it. With
// follow, later output is sent as events for the next exchange.FollowFor.
func (t *Table) Output(key string, follow bool) exchange.OutputAnswer {
	attempt := t.running(key)
	if attempt == nil {
		return exchange.OutputAnswer{}
	}
	return attempt.reports.answer(follow)
}

// nonce returns a value that no other write of this process has. If the answer to a write is
// lost, the node recognises its own write by its nonce.
func (t *Table) nonce(node string) string {
	return node + "#" + strconv.FormatUint(t.writes.Add(1), 10)
}

// ids returns the IDs of the slots that node works on. An abandoned slot is not one: nothing of it runs,
// and it stays in the table even if another worker has ended it.
func (t *Table) ids(node string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []string
	for key, o := range t.entries {
		if o.node == node && !o.abandoned {
			slot, _ := job.ParseSlotKey(key) // the key was made from a slot
			ids = append(ids, slot.ID())
		}
	}
	slices.Sort(ids)
	return ids
}

// Len returns how many slots node works on.
func (t *Table) Len(node string) int { return len(t.ids(node)) }

// Running returns how many handlers the process runs, in all incarnations.
func (t *Table) Running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, o := range t.entries {
		if o.runs() {
			n++
		}
	}
	return n
}

// Size returns how many slots the process works on, in all incarnations.
func (t *Table) Size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
}
