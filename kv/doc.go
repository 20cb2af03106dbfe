// Package kv stores everything that a fleet remembers on the broker: the outcome of each slot
// (Ledger), the definitions (Jobs), the nodes (Nodes), the locks (Locks), the time up to which
// all slots are published (Watermark), which jobs failed or were late, and have not succeeded
// since (AlertStates), the end of the last sweep (SweepEnds), the events (Store.Events), and the
// messages of slots (Slots and Timers, of internal/broker/stream). All of it is streams and KV
// buckets of one namespace; docs/protocol.md defines the bytes. Callers see the sentinel errors
// of package job, never error codes.
//
// cronce.New opens a namespace itself. A program that only reads opens it like this:
//
//	store, err := kv.Open(ctx, js, kv.Options{ReadOnly: true})
//	if err != nil { ... }
//	for e, err := range store.Ledger().List(ctx, kv.ListFilter{Job: "report"}) {
//		if err != nil { ... }
//		fmt.Println(e.Slot.ID(), e.State, e.Attempt, e.Error)
//	}
//
// Everything is safe for concurrent use. Your program should not write to the ledger, the locks
// or the watermark: nodes do, and package client does for an operator.
//
// # Packages
//
// Package kv holds what is stored under keys, and what nodes say to each other. Four
// packages below it, in internal/broker, do the rest. Each imports only those before it:
//
//   - wire talks to the broker. The rules for writes without an answer are there.
//   - layout says what a namespace consists of, and which role needs which subjects.
//   - space opens, creates, changes and surveys a namespace, and opens its consumers.
//   - stream publishes, lists and receives slots and timers.
package kv
