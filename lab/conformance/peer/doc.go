// Package peer tests a running client. It acts as the other nodes of the client's fleet, and reports
// which MUSTs of docs/protocol.md the client breaks. Each scenario has its own server.
//
//	tap        a proxy between the client and the server: it reads each protocol message, and
//	           lets a scenario drop, hold or answer it
//	stage      the environment of one scenario: the server, the namespace, the client's process
//	record     what the handlers of the client did, and the story of a slot
//	oracle     what holds in every scenario: no ack before the outcome, no write without a revision
//	worker     scenarios about claims, runs and completions
//	locks      scenarios about locks
//	follow     scenarios about what follows from an outcome: other slots, and alerts
//	answers    scenarios about answers of the broker that are errors, late or lost
//	values     scenarios about values that a newer program or a stranger has written
//	owner      scenarios about other nodes: slow, silent, dead
//	trust      scenarios about the client's own node: fenced, frozen, lapsed, stopped
//	producer   scenarios about publishing and the watermark
//	trigger    scenarios about runs that the client triggers itself
//
// The scenarios write and read values as docs/protocol.md describes them, and not with the packages
// of the Go nodes. These only create the namespace, translate slot IDs, and explain a slot.
package peer
