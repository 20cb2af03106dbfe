// Package conformance holds a client of the protocol, written in any language, against
// docs/protocol.md.
//
//	musts    the numbered MUSTs of the page, and what tests each of them
//	cases    the vectors, divided into questions and answers
//	judge    compares an answer with that of a vector
//	command  runs the client's command: a question a line, an answer a line
//	report   what was proved, what failed and what was left out, by MUST
//
// Package peer, below, plays a fleet of one against a running client.
package conformance
