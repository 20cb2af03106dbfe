package cronce_test

import (
	"context"
	"encoding/hex"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// A handler continues the trace of its slot. For a planned slot the slot's name decides
// the trace; for a triggered run it is the trace of the trigger, now and later.
func TestHandlersContextIsInTheTraceOfItsSlot(t *testing.T) {
	t.Parallel()
	provider := sdktrace.NewTracerProvider()
	s, _ := scheduler(t, natstest.Run(t), cronce.WithTracerProvider(provider))
	type ran struct {
		slot  job.Slot
		trace trace.SpanContext
	}
	runs := make(chan ran, 100)
	for _, j := range []job.Job{everySecond("tick"), {Name: "invoice", Schedule: "@at 2100-01-01T00:00:00Z"}} {
		handle(t, s, j, func(ctx context.Context, run job.Run) error {
			runs <- ran{run.Slot, trace.SpanContextFromContext(ctx)}
			return nil
		})
	}
	running(t, s)
	first := <-runs
	if want := first.slot.TraceID("cronce"); first.trace.TraceID() != want || !first.trace.IsSampled() {
		t.Errorf("%s ran in trace %s, want %s", first.slot, first.trace.TraceID(), hex.EncodeToString(want[:]))
	}
	for key, at := range map[string]time.Time{"now": {}, "later": time.Now().Add(time.Second)} {
		ctx, span := provider.Tracer("test").Start(t.Context(), "order")
		if _, err := s.Trigger(ctx, "invoice", cronce.TriggerOptions{Key: key, At: at}); err != nil {
			t.Fatal(err)
		}
		span.End()
		for r := range runs {
			if r.slot.Job != "invoice" {
				continue
			}
			if r.slot.Token != key || r.trace.TraceID() != span.SpanContext().TraceID() {
				t.Errorf("%s, triggered as %s, ran in trace %s, want %s", r.slot, key, r.trace.TraceID(), span.SpanContext().TraceID())
			}
			break
		}
	}
}
