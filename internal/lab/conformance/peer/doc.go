// Package peer plays a fleet of one against a client under test, each scenario on a server of
// its own, and says which MUST of docs/protocol.md the client breaks.
//
//	tap        stands between the client and the server: it reads each protocol message, and
//	           lets a scenario drop, hold or answer it
//	stage      one scenario: the server, the namespace, the client's process
//	record     what the handlers of the client did, and the story of a slot
//	oracle     what holds in every scenario: no ack before the outcome, no write without a revision
//	worker     scenarios about claims, runs and completions
//	locks      scenarios about locks
//	follow     scenarios about what follows from an outcome: other slots, and alerts
//	owner      scenarios about nodes: slow, dead, fenced, lapsed
//	producer   scenarios about publishing and the watermark
//	trigger    scenarios about runs that the client triggers itself
//
// The scenarios write and read the broker in the words of docs/protocol.md, and not through
// the packages of the Go nodes.
package peer
