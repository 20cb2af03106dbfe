// Package tracing follows slots with OpenTelemetry: their publication, and of each
// attempt the claim, the run and the completion, are spans of one trace.
//
// # Decisions
//
// The trace's ID is computed from the slot's (job.Slot.TraceID). A copy that the
// broker folds, one that is published again since its answer was lost, one that
// the sweep offers weeks later: all belong to the trace, whichever of them was
// stored, and a worker that finds no traceparent on a message (its producer does
// not trace) needs none. All nodes that sample by trace ID decide alike. Nobody
// has to store which trace a slot has. Rejected: a random
// ID, as is usual. Of two copies one would be folded and its publication, a trace of
// its own, would point nowhere.
//
// Nobody owns the root, since any number of producers may publish: each publication
// is a span without a parent. The SDK takes the ID of the trace from a parent's
// context that has no span ID; since that is no valid parent, its sampler decides as
// for every root. An SDK that does otherwise makes up an ID, and the header carries
// that one on.
//
// A traceparent on a message is believed, whatever trace it names, and one that a
// publication has already is its parent: a program that triggers a run, or sends a
// message that starts one, may continue its own.
//
// Publications are traced where all of them pass, in kv.Slots, and not by each of
// those that have a reason to publish: a producer, a worker that follows up an
// outcome, the sweep, an operator.
//
// Slots that are only recorded as missed have no trace: after an outage there are
// thousands of them, and nothing to see.
//
// Without a provider there is no Tracer, and nothing is computed.
package tracing
