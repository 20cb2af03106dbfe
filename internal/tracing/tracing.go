package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/cronce-io/cronce/job"
)

// scope names who makes the spans.
const scope = "github.com/cronce-io/cronce"

// Tracer makes the spans of slots. It is safe for concurrent use.
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

// Publish begins the publication of a message, and enters in it where the trace
// goes on. ended, which may be nil, is to be told how it ended.
func (t *Tracer) Publish(queue string, m *job.Message) (ended func(duplicate bool, err error)) {
	if m.Missed > 0 {
		return nil
	}
	ctx, span := t.tracer.Start(t.root(m.Slot), "publish "+m.Slot.Job, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(append(about(queue, m.Slot), attribute.String("cronce.node", m.Node))...))
	m.Traceparent = Headers(ctx)["traceparent"]
	return func(duplicate bool, err error) {
		span.SetAttributes(attribute.Bool("cronce.folded", duplicate))
		end(span, err)
	}
}

// Step begins a step of an attempt ("claim", "run", "complete") at a delivered slot,
// whose record is as given or about to be. ended is to be told how it ended.
func (t *Tracer) Step(ctx context.Context, step string, d job.Delivery, rec job.Record) (_ context.Context, ended func(error)) {
	if d.Missed > 0 {
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

// root is a context in which a span has no parent, and the slot's trace.
func (t *Tracer) root(s job.Slot) context.Context {
	return t.of(context.Background(), s)
}

func (t *Tracer) of(ctx context.Context, s job.Slot) context.Context {
	id := trace.SpanContextConfig{TraceID: s.TraceID(t.namespace)}
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(id))
}

// parent is ctx in the trace of the message.
func (t *Tracer) parent(ctx context.Context, m job.Message) context.Context {
	if m.Traceparent != "" {
		carrier := propagation.MapCarrier{"traceparent": m.Traceparent}
		if ctx := (propagation.TraceContext{}).Extract(ctx, carrier); trace.SpanContextFromContext(ctx).IsRemote() {
			return ctx
		}
	}
	return t.of(ctx, m.Slot)
}

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
