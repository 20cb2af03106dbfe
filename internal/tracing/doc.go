// Package tracing makes OpenTelemetry spans for slots. The publication of a slot, and the
// claim, the run and the completion of each attempt, are spans of one trace.
//
// The ID of the trace is computed from the slot (job.Slot.TraceID). So all copies of a message
// belong to one trace, whichever of them the stream stores; a worker can compute the ID if a
// message has no traceparent; and all nodes that sample by trace ID decide alike. See
// docs/decisions/0040.
//
// Each publication is a root span, since any number of producers may publish a slot. The SDK
// takes the trace ID from a parent context that has no span ID. Such a parent is not valid,
// so the sampler decides as for a root. If an SDK generates another ID instead, the
// traceparent header passes that ID on.
//
// If a message has a traceparent, the spans continue that trace. In this way, a program that
// triggers a run, or sends a message that starts one, can continue its own trace.
//
// Package stream traces publications, because all of them pass through it: those of producers,
// workers, the sweep and operators.
//
// Slots that are only recorded as missed have no trace. After an outage there are thousands
// of them.
//
// Without a provider, the Tracer is nil, and nothing is computed.
package tracing
