package natsaction_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/action/natsaction"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRun(output io.Writer) job.Run {
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	return job.Run{
		Slot: job.NewSlot("report", at), Attempt: 2, Fence: 41, Due: at,
		Node: "host-1-x-y", Queue: "default", Namespace: "shop", Output: output,
		Payload: json.RawMessage(`{"format":"pdf"}`),
	}
}

func connect(t *testing.T) *nats.Conn {
	t.Helper()
	return natstest.Connect(t, natstest.Run(t).ClientURL())
}

// serve answers requests to svc.report with micro, the framework whose errors the action
// recognizes.
func serve(t *testing.T, nc *nats.Conn, handle func(micro.Request)) {
	t.Helper()
	s, err := micro.AddService(nc, micro.Config{Name: "svc", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	if err := s.AddEndpoint("report", micro.HandlerFunc(handle), micro.WithEndpointSubject("svc.report")); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestTheServiceReceivesTheSlotAndItsAnswerIsKept(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	heard := make(chan micro.Headers, 1)
	serve(t, nc, func(r micro.Request) {
		heard <- r.Headers()
		_ = r.Respond(append([]byte("got "), r.Data()...))
	})
	var out bytes.Buffer
	run := newRun(&out)
	run.Slot, run.Shard, run.Shards = run.Slot.WithShard(3, 8), 3, 8
	if err := natsaction.New(spec.NATS{Subject: "svc.report"}, nc)(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != `got {"format":"pdf"}` {
		t.Errorf("output %q", got)
	}
	h := <-heard
	for name, want := range map[string]string{
		"Idempotency-Key": "shop/report:2026-11-21T07:00:00Z#3of8", "Cronce-Slot-Id": "report:2026-11-21T07:00:00Z#3of8", "Cronce-Shard": "3", "Cronce-Shards": "8", "Cronce-Slot": "2026-11-21T07:00:00Z",
		"Cronce-Job": "report", "Cronce-Attempt": "2", "Cronce-Fence": "41", "Content-Type": "application/json",
	} {
		if h.Get(name) != want {
			t.Errorf("header %s: got %q, want %q", name, h.Get(name), want)
		}
	}
}

func TestTheServicesErrorDecides(t *testing.T) {
	t.Parallel()
	for code, permanent := range map[string]bool{"": false, "400": true, "410": true, "422": true, "404": false, "500": false, "503": false, "teapot": false} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			nc := connect(t)
			serve(t, nc, func(r micro.Request) {
				if code == "" {
					_ = r.Respond(nil) // an empty answer counts as one
					return
				}
				_ = r.Error(code, "no such customer", []byte("body"))
			})
			var out bytes.Buffer
			err := natsaction.New(spec.NATS{Subject: "svc.report"}, nc)(t.Context(), newRun(&out))
			if code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if want := "request to svc.report: error " + code + ": no such customer"; err == nil || err.Error() != want || job.IsPermanent(err) != permanent || out.String() != "body" {
				t.Errorf("got %v, permanent %t, output %q; want %s, permanent %t", err, job.IsPermanent(err), &out, want, permanent)
			}
		})
	}
}

// A stream answers a request on its subject, whether it has stored it or not. If the JSON answer of a
// service has an error of another form, it is not taken for the answer of a stream.
func TestAStreamThatDidNotStoreTheRequestIsRetried(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}, MaxMsgs: 1, Discard: jetstream.DiscardNew}); err != nil {
		t.Fatal(err)
	}
	h := natsaction.New(spec.NATS{Subject: "orders.new"}, nc)
	if err := h(t.Context(), newRun(io.Discard)); err != nil {
		t.Errorf("the first one, for which there is room: %v", err)
	}
	var out bytes.Buffer
	err = h(t.Context(), newRun(&out))
	if want := "request to orders.new: stream ORDERS did not store the request: maximum messages exceeded"; err == nil || err.Error() != want || job.IsPermanent(err) || !strings.Contains(out.String(), "err_code") {
		t.Errorf("of a full stream: got %v, output %q; want %s", err, &out, want)
	}

	serve(t, nc, func(r micro.Request) {
		_ = r.Respond([]byte(`{"error":{"code":7,"description":"two rows were wrong"}}`))
	})
	if err := natsaction.New(spec.NATS{Subject: "svc.report"}, nc)(t.Context(), newRun(io.Discard)); err != nil {
		t.Errorf("an answer of the service's own: %v", err)
	}
}

func TestASubjectWithoutListenersIsRetried(t *testing.T) {
	t.Parallel()
	err := natsaction.New(spec.NATS{Subject: "svc.report"}, connect(t))(t.Context(), newRun(io.Discard))
	if !errors.Is(err, nats.ErrNoResponders) || job.IsPermanent(err) || !strings.HasPrefix(err.Error(), "request to svc.report: no subscriber") {
		t.Errorf("got %v", err)
	}
}

func TestAServiceThatDoesNotAnswerEndsWithTheCause(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	_, err := nc.SubscribeSync("svc.report")
	if err != nil {
		t.Fatal(err)
	}
	err = natsaction.New(spec.NATS{Subject: "svc.report", Timeout: 50 * time.Millisecond}, nc)(t.Context(), newRun(io.Discard))
	if !errors.Is(err, job.ErrTimeout) || err.Error() != "request to svc.report: timeout of 50ms" {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(job.ErrLeaseLost)
	err = natsaction.New(spec.NATS{Subject: "svc.report"}, nc)(ctx, newRun(io.Discard))
	if !errors.Is(err, job.ErrLeaseLost) || job.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}

// If this server refuses the payload as too large, the slot does not end: another node may be
// connected to a server that accepts it.
func TestARequestThatIsTooLargeIsRetried(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Run(t, func(o *server.Options) { o.MaxPayload = 1024 }).ClientURL())
	run := newRun(io.Discard)
	run.Payload = json.RawMessage(`"` + strings.Repeat("x", 2048) + `"`)
	err := natsaction.New(spec.NATS{Subject: "svc.report"}, nc)(t.Context(), run)
	if !errors.Is(err, nats.ErrMaxPayload) || job.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}

// The client would buffer the request, and send it whenever it is connected again.
func TestNothingIsSentWhileThereIsNoConnection(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	nc.Close()
	err := natsaction.New(spec.NATS{Subject: "svc.report"}, nc)(t.Context(), newRun(io.Discard))
	if !errors.Is(err, nats.ErrDisconnected) || job.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}
