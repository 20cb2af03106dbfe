package tracing_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
)

var slot = job.NewSlot("report", time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC))

// traced is a tracer and what it has recorded.
func traced(sampler sdktrace.Sampler) (*tracing.Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sampler))
	return tracing.New(provider, "cronce", "v1"), spans
}

func id(s job.Slot) string {
	id := s.TraceID("cronce")
	return hex.EncodeToString(id[:])
}

func TestAllSpansOfASlotAreOfTheTraceThatItsNameSays(t *testing.T) {
	t.Parallel()
	tracer, spans := traced(sdktrace.ParentBased(sdktrace.AlwaysSample()))
	ours, other := core.Message{Slot: slot, Node: "a"}, core.Message{Slot: slot.WithShard(2, 3), Node: "b"}
	tracer.Publish("default", &ours)(false, nil)
	tracer.Publish("default", &other)(true, nil)
	untraced := core.Message{Slot: slot} // of a producer that does not trace
	for _, m := range []core.Message{ours, untraced} {
		for _, step := range []string{"claim", "run", "complete"} {
			ctx, ended := tracer.Step(t.Context(), step, core.Delivery{Message: m}, job.Record{Slot: slot})
			if got := tracing.Headers(ctx)["traceparent"]; len(got) != 55 || got[3:35] != id(slot) || got[53:] != "01" {
				t.Errorf("%s goes on with traceparent %q", step, got)
			}
			ended(nil)
		}
	}
	published := spans.Ended()[0].SpanContext().SpanID()
	for i, s := range spans.Ended() {
		if got := s.SpanContext().TraceID().String(); got != id(slot) {
			t.Errorf("%s is of trace %s, want %s", s.Name(), got, id(slot))
		}
		parent := trace.SpanID{} // what is published, or found no traceparent, has none
		if i >= 2 && i < 5 {
			parent = published
		}
		if s.Parent().SpanID() != parent {
			t.Errorf("%s (%d): its parent is %s, want %s", s.Name(), i, s.Parent().SpanID(), parent)
		}
	}
	if n := len(spans.Ended()); n != 8 {
		t.Errorf("%d spans", n)
	}
}

// A trace ID without a span ID is not a parent: the sampler decides as for a root, and alike on
// every node.
func TestTheSamplerDecidesByTheSlot(t *testing.T) {
	t.Parallel()
	sampled := func(s job.Slot) bool {
		tracer, spans := traced(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(.5)))
		m := core.Message{Slot: s}
		tracer.Publish("default", &m)(false, nil)
		if want := fmt.Sprintf("%02d", len(spans.Ended())); m.Traceparent[53:] != want {
			t.Errorf("%s: traceparent %s, and %d spans", s, m.Traceparent, len(spans.Ended()))
		}
		return len(spans.Ended()) == 1
	}
	const slots = 200
	n := 0
	for i := range slots {
		s := job.NewSlot("report", slot.At.Add(time.Duration(i)*time.Second))
		one, other := sampled(s), sampled(s)
		if one != other {
			t.Errorf("%s is sampled by one node and not by another", s)
		}
		if one {
			n++
		}
	}
	if n < slots/4 || n > slots*3/4 {
		t.Errorf("%d of %d slots were sampled, of a half", n, slots)
	}
}

func TestATraceOfSomebodyElsesIsContinued(t *testing.T) {
	t.Parallel()
	tracer, spans := traced(sdktrace.ParentBased(sdktrace.AlwaysSample()))
	for parent, want := range map[string]string{
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": "4bf92f3577b34da6a3ce929d0e0e4736",
		"garbage": id(slot), "": id(slot),
	} {
		_, ended := tracer.Step(t.Context(), "run", core.Delivery{Message: core.Message{Slot: slot, Traceparent: parent}}, job.Record{})
		ended(nil)
		all := spans.Ended()
		if got := all[len(all)-1].SpanContext().TraceID().String(); got != want {
			t.Errorf("traceparent %q: trace %s, want %s", parent, got, want)
		}
	}
}

func TestAFailureIsAnErrorAndALostClaimIsNone(t *testing.T) {
	t.Parallel()
	tracer, spans := traced(sdktrace.AlwaysSample())
	for i, c := range []struct {
		err  error
		want codes.Code
	}{{nil, codes.Unset}, {errors.New("no paper"), codes.Error}, {fmt.Errorf("write: %w", job.ErrConflict), codes.Unset}} {
		_, ended := tracer.Step(t.Context(), "claim", core.Delivery{Message: core.Message{Slot: slot}}, job.Record{})
		ended(c.err)
		if got := spans.Ended()[i].Status(); got.Code != c.want {
			t.Errorf("%v is %+v", c.err, got)
		}
	}
}

func TestWhatIsOnlyRecordedAsMissedIsNotTraced(t *testing.T) {
	t.Parallel()
	tracer, spans := traced(sdktrace.AlwaysSample())
	m := core.Message{Slot: slot, Missed: 1}
	if tracer.Publish("default", &m) != nil || m.Traceparent != "" {
		t.Errorf("traceparent %q", m.Traceparent)
	}
	_, ended := tracer.Step(t.Context(), "complete", core.Delivery{Message: m}, job.Record{})
	ended(nil)
	if n := len(spans.Ended()); n > 0 {
		t.Errorf("%d spans", n)
	}
}

func TestWithoutAProviderThereIsNothing(t *testing.T) {
	t.Parallel()
	if tracing.New(nil, "cronce", "v1") != nil {
		t.Error("there is a tracer")
	}
	if h := tracing.Headers(context.Background()); len(h) > 0 {
		t.Errorf("headers %v", h)
	}
}
