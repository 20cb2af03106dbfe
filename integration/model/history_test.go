package model

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// outcome is what a client was told of its call.
type outcome string

const (
	won        outcome = "won"
	refused    outcome = "conflict"
	unanswered outcome = "unknown" // and given up: it may land at any later time, or never
	saw        outcome = "saw"     // a read
)

// call is one operation of a client on one key, from its first request to the
// answer that settled it: a write that was repeated is one call.
type call struct {
	client int
	key    string
	what   string // claim, takeover, complete, beat, fence, read
	outcome

	nonce string // of the value written, or seen; "" for nothing there
	at    uint64 // the revision that a write named
	value string // what the value says, for people
	final bool   // the value is an outcome, or a node's death

	revision uint64 // of the value, as far as the client was told
	began    time.Duration
	ended    time.Duration
}

// history is what all clients did.
type history struct {
	start time.Time
	mu    sync.Mutex
	calls []call
}

func newHistory() *history { return &history{start: time.Now()} }

func (h *history) now() time.Duration { return time.Since(h.start) }

func (h *history) add(c call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
}

// cell is one key of the sequential ledger: the value that stands there.
type cell struct {
	revision uint64
	nonce    string
	value    string
	final    bool
}

// step is what a call comes to in the sequential ledger.
type step struct {
	kind stepKind
	call
}

type stepKind int

const (
	stores  stepKind = iota // the value was stored, at a known revision
	loses                   // the key has another client's value
	sees                    // the value was read
	perhaps                 // stored or not, no client has seen it since
)

// ledger is the sequential model: a register per key, written at a revision.
func ledger() porcupine.Model {
	return porcupine.Model{
		Partition: byKey,
		Init:      func() any { return cell{} },
		Step: func(state, input, _ any) (bool, any) {
			return apply(state.(cell), input.(step))
		},
		DescribeOperation: func(input, _ any) string { return input.(step).String() },
		DescribeState: func(state any) string {
			c := state.(cell)
			return fmt.Sprintf("%d: %s (%s)", c.revision, c.value, c.nonce)
		},
	}
}

func apply(c cell, s step) (bool, cell) {
	switch s.kind {
	case stores:
		return c.revision == s.at && s.revision > s.at && !c.final, cell{s.revision, s.nonce, s.value, s.final}
	case loses:
		return c.revision != s.at && c.nonce != s.nonce, c
	case sees:
		return c.revision == s.revision && c.nonce == s.nonce, c
	default:
		// No client can name the revision of a value that none saw: a zero
		// revision with a nonce is one at which nothing can be won any more.
		if c.revision == s.at && !(c.revision == 0 && c.nonce != "") {
			c = cell{0, s.nonce, s.value, s.final}
		}
		return true, c
	}
}

func (s step) String() string {
	if s.kind == sees {
		return fmt.Sprintf("read: %s (%s) at %d", s.value, s.nonce, s.revision)
	}
	text := fmt.Sprintf("%s %s (%s) over %d: %s", s.what, s.value, s.nonce, s.at, s.outcome)
	switch s.kind {
	case stores:
		text += fmt.Sprintf(", stored at %d", s.revision)
	case loses:
		text += ", not there"
	}
	return text
}

func byKey(ops []porcupine.Operation) (parts [][]porcupine.Operation) {
	index := map[string]int{}
	for _, op := range ops {
		key := op.Input.(step).key
		i, known := index[key]
		if !known {
			i = len(parts)
			index[key], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}

// operations turns calls into steps of the sequential ledger. hints says that a
// read may show a value that was already replaced when it was asked for, though
// never one that is not stored yet.
func operations(calls []call, hints bool) ([]porcupine.Operation, error) {
	at, err := revisions(calls)
	if err != nil {
		return nil, err
	}
	var end time.Duration
	for _, c := range calls {
		end = max(end, c.ended)
	}
	var ops []porcupine.Operation
	add := func(kind stepKind, c call) {
		ops = append(ops, porcupine.Operation{ClientId: c.client, Input: step{kind, c}, Call: int64(c.began), Return: int64(c.ended)})
	}
	for _, c := range calls {
		seenAt, seen := at[c.nonce]
		if c.outcome == unanswered {
			c.ended = end + 1
		}
		if c.outcome != saw && seen {
			c.revision = seenAt
		}
		switch {
		case c.outcome == saw:
			if hints {
				c.began = 0
			}
			add(sees, c)
		case seen:
			// Whatever its writer was told, it was stored. If that was "conflict",
			// it was also replaced before its writer was told.
			add(stores, c)
			if c.outcome == refused {
				add(loses, c)
			}
		case c.outcome == refused:
			add(loses, c)
		default:
			add(perhaps, c)
		}
	}
	return ops, nil
}

// revisions is where each value was stored, as far as anybody ever knew.
func revisions(calls []call) (map[string]uint64, error) {
	at := map[string]uint64{}
	for _, c := range calls {
		if c.outcome != won && c.outcome != saw || c.nonce == "" {
			continue
		}
		if r, known := at[c.nonce]; known && r != c.revision {
			return nil, fmt.Errorf("%s: the value %q stands at revisions %d and %d", c.key, c.nonce, r, c.revision)
		}
		at[c.nonce] = c.revision
	}
	return at, nil
}

// checkLimit bounds the search of the checker, which is exponential at worst.
const checkLimit = 10 * time.Second

// check says whether the history is one of the sequential ledger. It must not
// change any more.
func (h *history) check(hints bool) (porcupine.CheckResult, porcupine.LinearizationInfo, error) {
	ops, err := operations(h.calls, hints)
	if err != nil {
		return porcupine.Illegal, porcupine.LinearizationInfo{}, err
	}
	result, info := porcupine.CheckOperationsVerbose(ledger(), ops, checkLimit)
	return result, info, nil
}

// mustBeLinearizable fails the test otherwise, and leaves a picture of the
// history behind.
func (h *history) mustBeLinearizable(t *testing.T, hints bool) {
	t.Helper()
	result, info, err := h.check(hints)
	switch {
	case err != nil:
		t.Fatal(err)
	case result == porcupine.Ok:
		return
	}
	picture, err := os.CreateTemp("", "cronce-history-*.html")
	if err != nil {
		t.Fatal(err)
	}
	defer picture.Close()
	if err := porcupine.Visualize(ledger(), info, picture); err != nil {
		t.Fatal(err)
	}
	t.Fatalf("the history is not linearizable (%s); open %s in a browser", result, picture.Name())
}
