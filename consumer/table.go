package consumer

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/cronce-io/cronce/job"
)

// Table holds every slot that this process owes something: a claim not yet
// answered, a run, a completion not yet answered. One table serves all queues
// and all incarnations of a process.
//
// Invariants:
//   - A slot is in it at most once, so two deliveries of one slot to one process
//     never meet in the ledger as if they were strangers.
//   - An obligation ends settled, or with its incarnation *and* its handler: a new
//     incarnation takes nothing over from an older one of its own process whose
//     handler has not returned.
//
// It is safe for concurrent use.
type Table struct {
	mu     sync.Mutex
	owed   map[string]obligation // by slot key
	writes int
}

// obligation is what an incarnation owes one slot.
type obligation struct {
	node    string
	attempt *running // nil while no handler runs
}

// running is an attempt whose handler has not returned.
type running struct {
	fence uint64
	ctx   context.Context
	end   context.CancelCauseFunc
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{owed: map[string]obligation{}} }

// take enters an obligation of node. If the slot is in the table already, it
// returns who owes it.
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
}

// run enters the attempt that is about to start, or with nil that its handler
// has returned.
func (t *Table) run(key string, attempt *running) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.owed[key]
	o.attempt = attempt
	t.owed[key] = o
}

// Cancel ends the context of the handler that runs the slot's attempt of this
// fence, with cause (see job.Ended), and reports whether it has ended for such a
// cause. If not, the attempt is not of this process, has not been started or is
// over, or its context had ended for another reason: the record will say more.
func (t *Table) Cancel(key string, fence uint64, cause error) bool {
	t.mu.Lock()
	attempt := t.owed[key].attempt
	t.mu.Unlock()
	if attempt == nil || attempt.fence != fence {
		return false
	}
	attempt.end(cause)
	return job.Ended(context.Cause(attempt.ctx))
}

// owes reports whether node owes the slot anything.
func (t *Table) owes(key, node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, owed := t.owed[key]
	return owed && o.node == node
}

// nonce is new with every write of the process: a node recognises its own write
// by it when the answer was lost.
func (t *Table) nonce(node string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes++
	return node + "#" + strconv.Itoa(t.writes)
}

// held lists the slots that node still owes.
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

// Len is how many slots node owes.
func (t *Table) Len(node string) int { return len(t.held(node)) }

// Size is how many slots the process owes, whatever the incarnation.
func (t *Table) Size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.owed)
}
