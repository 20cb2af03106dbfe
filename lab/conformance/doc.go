// Package conformance checks that a client of the protocol, written in any language, does what
// docs/protocol.md says.
//
//	musts    the numbered MUSTs of the page, and the tests of each
//	cases    the vectors, divided into questions and answers
//	judge    compares an answer with that of a vector
//	command  runs the client's command: one question or answer on each line
//	report   counts the cases of each MUST that passed, failed or were left out
//
// Package peer, below, acts as the rest of a fleet for a running client.
package conformance
