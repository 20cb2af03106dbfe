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

// scope is the instrumentation scope of the spans.
const scope = "github.com/cronce-io/cronce"

// Tracer makes the spans of slots. It is safe for concurrent use. A nil *Tracer makes none.
type Tracer struct {
	tracer    trace.Tracer
	namespace string
}

// New returns a tracer for the slots of a namespace, or nil if provider is nil.
func New(provider trace.TracerProvider, namespace, version string) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{provider.Tracer(scope, trace.WithInstrumentationVersion(version)), namespace}
}

// Publish begins the span of a publication, in the trace that the message names or else in
// the trace of its slot. It sets the traceparent of m to that span. If ended is not nil, call
// it with the result of the publication.
func (t *Tracer) Publish(queue string, m *core.Message) (ended func(duplicate bool, err error)) {
	if t == nil || m.LeftOut() {
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

// Step begins the span of a step ("claim", "run" or "complete") of an attempt at d. rec is
// the record of the slot, as stored or as about to be written. Call ended with the result of
// the step.
func (t *Tracer) Step(ctx context.Context, step string, d core.Delivery, rec job.Record) (_ context.Context, ended func(error)) {
	if t == nil || d.LeftOut() {
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

// parent returns ctx in the trace that the message names, or else in the trace of its slot. In the
// second case, a span that is started from the result has no parent.
func (t *Tracer) parent(ctx context.Context, m core.Message) context.Context {
	if ctx, ok := within(ctx, m.Traceparent); ok {
		return ctx
	}
	id := trace.SpanContextConfig{TraceID: m.Slot.TraceID(t.namespace)}
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(id))
}

// within returns ctx in the trace that a traceparent names; ok is false if it names none.
func within(ctx context.Context, traceparent string) (_ context.Context, ok bool) {
	if traceparent == "" {
		return ctx, false
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{core.HeaderTraceparent: traceparent})
	return ctx, trace.SpanContextFromContext(ctx).IsRemote()
}

// Continue returns ctx in the trace that the headers of a foreign message or request name,
// or ctx itself if they name none. Header names may be in any case.
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

// Traceparent returns the header value that continues the trace of ctx, or "" without a
// trace.
func Traceparent(ctx context.Context) string { return Headers(ctx)[core.HeaderTraceparent] }

// about returns the attributes of all spans of a slot.
func about(queue string, s job.Slot) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "nats"), attribute.String("cronce.queue", queue),
		attribute.String("cronce.job", s.Job), attribute.String("cronce.slot", s.ID()),
	}
}

// end ends a span. A conflict is not an error: another node was faster.
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

// Headers returns the W3C headers traceparent and tracestate, in lower case, that continue
// the trace of ctx in a called program. Without a trace it returns nil.
func Headers(ctx context.Context) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier
}
