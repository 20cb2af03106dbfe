package model

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// outcome is the result of a call, as its client knows it.
type outcome string

const (
	won        outcome = "won"
	refused    outcome = "conflict"
	unanswered outcome = "unknown" // and given up: it may land at any later time, or never
	saw        outcome = "saw"     // a read
)

// call is one operation of a client on one key, from its first request to the answer that settled it. A
// write that was repeated is one call.
type call struct {
	client int
	key    string
	what   string // claim, takeover, complete, beat, fence, read
	outcome

	nonce string // of the value that was written or read; empty: a read found no value
	at    uint64 // the revision that a write named
	value string // a description of the value, for people
	final bool   // the value is an outcome, or ends a node

	revision uint64 // of the value, if the client knows it
	began    time.Duration
	ended    time.Duration
}

// history has the calls of all clients.
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

// cell is the value of one key of the sequential ledger.
type cell struct {
	revision uint64
	nonce    string
	value    string
	final    bool
}

// step is the effect of a call on the sequential ledger.
type step struct {
	kind stepKind
	call
}

type stepKind int

const (
	stores  stepKind = iota // the value was stored, at a known revision
	loses                   // the key has another client's value
	sees                    // the value was read
	perhaps                 // the value may have been stored, and no client has seen it
)

// ledger is the sequential model: a register for each key, written at a revision.
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
		// No client can name the revision of a value that none has seen. A revision of 0 with a nonce
		// stands for it: no write at that revision can be won.
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

// operations turns calls into steps of the sequential ledger. If hints is true, a read may return a value
// that had been replaced before the read began, but never one that is not stored yet.
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
			// It was stored, whatever answer its writer got. If that was a conflict, it was also replaced
			// before the writer got the answer.
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

// revisions returns the revision of each value, by its nonce, if any client learned it.
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

// checkLimit bounds the duration of the checker's search, which is exponential in the worst case.
const checkLimit = 10 * time.Second

// check searches for an order in which the sequential ledger gives the same answers. The history must be
// complete.
func (h *history) check(hints bool) (porcupine.CheckResult, porcupine.LinearizationInfo, error) {
	ops, err := operations(h.calls, hints)
	if err != nil {
		return porcupine.Illegal, porcupine.LinearizationInfo{}, err
	}
	result, info := porcupine.CheckOperationsVerbose(ledger(), ops, checkLimit)
	return result, info, nil
}

// mustBeLinearizable fails the test if the history is not linearizable. Then it also writes a picture of
// the history to a file.
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
