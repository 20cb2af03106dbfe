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
	"github.com/cronce-io/cronce/job"
)

// Table holds every slot that this process works on, from before its claim until its message is
// settled. One table serves all queues and all incarnations of a process.
//
// Invariants:
//   - A slot is in the table at most once. So two deliveries of one slot to one process never
//     compete for its claim.
//   - A slot stays in the table until its handler has returned, even after its incarnation has
//     ended. So a new incarnation takes no slot over from an older one of the same process
//     whose handler still runs.
//
// It is safe for concurrent use.
type Table struct {
	writes atomic.Uint64

	mu      sync.Mutex
	owed    map[string]obligation // by slot key
	changed chan struct{}         // closed at the next change; nil: await does not wait

	limiters map[string]*limiter // by queue
}

// obligation is the state of one slot in the table.
type obligation struct {
	node    string      // the incarnation that took the slot
	attempt *attemptRef // nil before the handler runs
	over    bool        // the handler has returned
	inTime  bool        // the handler returned before the lease ended, or may outlive it: its result is written in any case

	// ended is when Table.Stuck first saw that the handler's context had ended. stuck:
	// Table.Stuck has returned the handler.
	ended time.Time
	stuck bool
}

// outlives reports whether the obligation may outlive its incarnation.
func (o obligation) outlives() bool { return o.attempt != nil && (o.attempt.finish || o.inTime) }

// attemptRef is what the table knows of an attempt.
type attemptRef struct {
	fence uint64
	ctx   context.Context
	end   context.CancelCauseFunc

	// finish says that the handler may outlive its incarnation.
	finish bool
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{owed: map[string]obligation{}, limiters: map[string]*limiter{}}
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

// take enters a slot for node. If the slot is in the table already, take returns false and the
// node that took it.
func (t *Table) take(key, node string) (owner string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o, taken := t.owed[key]; taken {
		return o.node, false
	}
	t.owed[key] = obligation{node: node}
	return node, true
}

func (t *Table) end(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owed, key)
	t.tell()
}

// tell wakes await. t.mu is held.
func (t *Table) tell() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// await waits until as is true of every obligation. It returns false if ctx ends first.
func (t *Table) await(ctx context.Context, as func(obligation) bool) bool {
	for {
		t.mu.Lock()
		all := true
		for _, o := range t.owed {
			all = all && as(o)
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

// Finish waits for the handlers that have outlived their incarnations. When over ends, Finish
// ends their contexts with job.ErrStopping, and waits up to linger until they have returned and
// their results are recorded. It does not wait for handlers whose contexts a Consumer has ended
// with job.ErrStopping. It is called when no Consumer runs any more.
func (t *Table) Finish(over context.Context) {
	gone := func(o obligation) bool {
		return !o.outlives() || errors.Is(context.Cause(o.attempt.ctx), job.ErrStopping)
	}
	if t.await(over, gone) {
		return
	}
	told := map[*attemptRef]bool{}
	t.mu.Lock()
	for _, o := range t.owed {
		if !gone(o) {
			o.attempt.end(job.ErrStopping)
			told[o.attempt] = true
		}
	}
	t.mu.Unlock()
	last, enough := context.WithTimeout(context.Background(), linger)
	defer enough()
	t.await(last, func(o obligation) bool { return !told[o.attempt] })
}

// Stuck is a handler that does not return.
type Stuck struct {
	Slot job.Slot

	// For is how long ago its context was seen to have ended, and Cause is why it ended.
	For   time.Duration
	Cause error
}

// Stuck returns the handlers that have not returned within after since their contexts ended. It
// returns each handler once. It notices the end of a context only when it is called, so call it
// often.
func (t *Table) Stuck(after time.Duration) (found []Stuck) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, o := range t.owed {
		switch {
		case o.attempt == nil || o.over || o.stuck || o.attempt.ctx.Err() == nil:
			continue
		case o.ended.IsZero():
			o.ended = now
		case now.Sub(o.ended) > after:
			o.stuck = true
			slot, _ := job.ParseSlotKey(key) // it was made of one
			found = append(found, Stuck{slot, now.Sub(o.ended), context.Cause(o.attempt.ctx)})
		}
		t.owed[key] = o
	}
	return found
}

// CountStuck returns how many of the handlers that Stuck has returned still run.
func (t *Table) CountStuck() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.owed {
		if o.stuck && !o.over {
			n++
		}
	}
	return n
}

// run notes the attempt that is about to start.
func (t *Table) run(key string, attempt *attemptRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.owed[key]
	o.attempt = attempt
	t.owed[key] = o
	t.tell()
}

// returned notes that the attempt's handler has returned, and whether in time.
func (t *Table) returned(key string, inTime bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.owed[key]
	o.over, o.inTime = true, inTime
	t.owed[key] = o
	t.tell()
}

// Cancel ends the context of the handler that runs the slot's attempt with this fence. It
// reports whether a cancellation has ended the context, by this cause or an earlier one (see
// core.Ended). It is false if this process does not run the attempt now, or if the context had
// ended for another reason. Then the caller has to look at the record.
func (t *Table) Cancel(key string, fence uint64, cause error) bool {
	t.mu.Lock()
	o := t.owed[key]
	t.mu.Unlock()
	attempt := o.attempt
	if attempt == nil || o.over || attempt.fence != fence {
		return false
	}
	attempt.end(cause)
	return core.Ended(context.Cause(attempt.ctx))
}

// Holds reports whether the process works on the slot, and whether the slot's handler still runs
// although its context has ended. If holds is false, this process starts a handler of the slot
// only after a new claim.
func (t *Table) Holds(key string) (holds, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, holds := t.owed[key]
	return holds, o.attempt != nil && !o.over && o.attempt.ctx.Err() != nil
}

// nonce is new with every write of the process. A node recognises its own write by it if
// the answer was lost.
func (t *Table) nonce(node string) string {
	return node + "#" + strconv.FormatUint(t.writes.Add(1), 10)
}

// held returns the keys of the slots that node works on.
func (t *Table) held(node string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []string
	for key, o := range t.owed {
		if o.node == node {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Len returns how many slots node works on.
func (t *Table) Len(node string) int { return len(t.held(node)) }

// Running is how many handlers the process runs, in all incarnations.
func (t *Table) Running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, o := range t.owed {
		if o.attempt != nil && !o.over {
			n++
		}
	}
	return n
}

// Size returns how many slots the process works on, in all incarnations.
func (t *Table) Size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.owed)
}
