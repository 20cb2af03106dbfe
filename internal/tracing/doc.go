// Package tracing makes OpenTelemetry spans of slots. The publication of a slot, and the
// claim, the run and the completion of each attempt, are spans of one trace.
//
// The ID of the trace is computed from the slot (job.Slot.TraceID). All copies of a message
// belong to the same trace, whichever of them the stream stored. A worker computes the ID if
// a message has no traceparent. All nodes that sample by trace ID decide alike. See
// docs/decisions/0040.
//
// Each publication is a root span, since any number of producers may publish a slot. The SDK
// takes the trace ID from a parent context that has no span ID. Such a parent is not valid,
// so the sampler decides as for a root. If an SDK makes up an ID instead, the traceparent
// header carries that ID on.
//
// If a message has a traceparent, the spans continue that trace. A program that triggers a
// run, or that sends a message which starts one, can so continue its own trace.
//
// Package stream traces publications in Slots, because all of them pass there: those of
// producers, workers, the sweep and operators.
//
// Slots that are only recorded as missed have no trace. After an outage there are thousands
// of them.
//
// Without a provider there is no Tracer, and nothing is computed.
package tracing
