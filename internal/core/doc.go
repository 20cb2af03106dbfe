// Package core holds the rules that every node applies alike.
//
//   - due.go: which slots of a job are due, and what its catch-up policy makes of late ones.
//   - message.go, on.go, follow.go: the messages of slots of a schedule, of an event, and of
//     a chain.
//   - claim.go: Decide, the next step of a worker that was delivered a slot; and the records
//     that each step writes (Complete, Release, Reopen, Conclude).
//   - lock.go: which slots of a job may run at once, by its overlap policy.
//   - definition.go, pause.go, owner.go: the registry's entries, and what replaces them.
//   - announcement.go, node.go, watermark.go, cancel.go, holds.go, sweepend.go: the other
//     values that nodes exchange.
//
// The package is pure: it has no clock, no broker and no goroutine. Two nodes with the
// same input come to the same answer, which is why every replica may schedule. The tests
// check the rules as tables, as scenario files (testdata) and as properties; the model in
// integration/model explores them together with a broker that loses answers.
package core
