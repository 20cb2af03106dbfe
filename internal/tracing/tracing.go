package tracing

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// scope names who makes the spans.
const scope = "github.com/cronce-io/cronce"

// Tracer makes the spans of slots. It is safe for concurrent use. A nil one makes
// none.
type Tracer struct {
	tracer    trace.Tracer
	namespace string
}

// New returns a tracer for the slots of a namespace; nil for no provider.
func New(provider trace.TracerProvider, namespace, version string) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{provider.Tracer(scope, trace.WithInstrumentationVersion(version)), namespace}
}

// Publish begins the publication of a message, in the trace that it names or in its
// slot's, and enters in it where that goes on. ended, which may be nil, is to be told
// how it ended.
func (t *Tracer) Publish(queue string, m *core.Message) (ended func(duplicate bool, err error)) {
	if t == nil || m.Missed > 0 {
		return nil
	}
	ctx, span := t.tracer.Start(t.parent(context.Background(), *m), "publish "+m.Slot.Job, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(append(about(queue, m.Slot), attribute.String("cronce.node", m.Node))...))
	m.Traceparent = Traceparent(ctx)
	return func(duplicate bool, err error) {
		span.SetAttributes(attribute.Bool("cronce.folded", duplicate))
		end(span, err)
	}
}

// Step begins a step of an attempt ("claim", "run", "complete") at a delivered slot,
// whose record is as given or about to be. ended is to be told how it ended.
func (t *Tracer) Step(ctx context.Context, step string, d core.Delivery, rec job.Record) (_ context.Context, ended func(error)) {
	if t == nil || d.Missed > 0 {
		return ctx, func(error) {}
	}
	kind := trace.SpanKindInternal
	if step == "run" {
		kind = trace.SpanKindConsumer
	}
	attributes := append(about(d.Queue, d.Slot), attribute.String("cronce.node", rec.Node), attribute.Int("cronce.attempt", rec.Attempt))
	if step == "complete" {
		attributes = append(attributes, attribute.String("cronce.state", string(rec.State)))
	}
	ctx, span := t.tracer.Start(t.parent(ctx, d.Message), step+" "+d.Slot.Job, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	return ctx, func(err error) { end(span, err) }
}

// parent is ctx in the trace of the message; a span that begins in its slot's own has
// no parent.
func (t *Tracer) parent(ctx context.Context, m core.Message) context.Context {
	if ctx, ok := within(ctx, m.Traceparent); ok {
		return ctx
	}
	id := trace.SpanContextConfig{TraceID: m.Slot.TraceID(t.namespace)}
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(id))
}

// within is ctx in the trace that a traceparent names, if it names one.
func within(ctx context.Context, traceparent string) (_ context.Context, ok bool) {
	if traceparent == "" {
		return ctx, false
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{core.HeaderTraceparent: traceparent})
	return ctx, trace.SpanContextFromContext(ctx).IsRemote()
}

// Continue is ctx in the trace that the headers of somebody else's message or request
// name, if they do. Their names may be written in any case.
func Continue(ctx context.Context, headers map[string][]string) context.Context {
	for name, values := range headers {
		if len(values) == 1 && strings.EqualFold(name, core.HeaderTraceparent) {
			if ctx, ok := within(ctx, values[0]); ok {
				return ctx
			}
		}
	}
	return ctx
}

// Traceparent is the one by which the trace of ctx goes on; empty without a trace.
func Traceparent(ctx context.Context) string { return Headers(ctx)[core.HeaderTraceparent] }

func about(queue string, s job.Slot) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "nats"), attribute.String("cronce.queue", queue),
		attribute.String("cronce.job", s.Job), attribute.String("cronce.slot", s.ID()),
	}
}

// end ends a span. That somebody else was faster is no failure.
func end(span trace.Span, err error) {
	switch {
	case errors.Is(err, job.ErrConflict):
		span.SetAttributes(attribute.Bool("cronce.conflict", true))
	case err != nil:
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Headers are those by which whoever is called continues the trace of ctx: W3C
// traceparent and tracestate, in lower case; none without a trace.
func Headers(ctx context.Context) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier
}
