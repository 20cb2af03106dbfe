package consumer

import (
	"slices"
	"strconv"
	"sync"
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
	owner  map[string]string // slot key -> incarnation
	writes int
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{owner: map[string]string{}} }

// take enters an obligation of node. If the slot is in the table already, it
// returns who owes it.
func (t *Table) take(key, node string) (owner string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if owner, taken := t.owner[key]; taken {
		return owner, false
	}
	t.owner[key] = node
	return node, true
}

func (t *Table) end(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owner, key)
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
	for key, owner := range t.owner {
		if owner == node {
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
	return len(t.owner)
}
