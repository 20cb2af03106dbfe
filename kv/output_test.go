package kv_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

type outputs func(key string, follow bool) exchange.OutputAnswer

func (f outputs) Output(key string, follow bool) exchange.OutputAnswer { return f(key, follow) }

func TestANodeIsAskedForTheOutputOfASlot(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s := open(t, srv.JetStream(), kv.Options{})
	ctx := within(t, 20*time.Second)
	slot := job.Slot{Job: "report", Token: "a*b c>"}
	if _, err := s.AskOutput(ctx, "web-1", slot, false); !errors.Is(err, job.ErrUnknown) {
		t.Errorf("without a responder: %v, want %v", err, job.ErrUnknown)
	}
	if _, err := s.AskOutput(ctx, "web.*", slot, false); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("of a node that cannot be one: %v", err)
	}
	want := exchange.OutputAnswer{V: 1, Runs: true, Attempt: 2, Fence: 7, Progress: &job.Progress{Done: 1, Total: 3, Text: "half\x1b", Time: time.Unix(9, 0).UTC()}, Output: "\x00é", To: 3}
	var heard []string
	stop, err := s.ServeOutput("web-1", outputs(func(key string, follow bool) exchange.OutputAnswer {
		if heard = append(heard, key); follow {
			return want
		}
		return exchange.OutputAnswer{}
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ask := func(follow bool) (exchange.OutputAnswer, error) {
		a, err := s.AskOutput(ctx, "web-1", slot, follow)
		for errors.Is(err, job.ErrUnknown) && ctx.Err() == nil { // the node may not be subscribed yet
			a, err = s.AskOutput(ctx, "web-1", slot, follow)
		}
		return a, err
	}
	if a, err := ask(true); err != nil || a.Progress == nil || *a.Progress != *want.Progress || a.Output != want.Output || a.To != 3 || a.Fence != 7 || a.Attempt != 2 || !a.Runs {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := ask(false); err != nil || a.Runs {
		t.Errorf("%+v, %v", a, err)
	}
	if heard[0] != slot.Key() {
		t.Errorf("heard %q", heard)
	}
	heard = nil
	for body, want := range map[string]string{"": "invalid request", `{"v":2,"id":"report:@x"}`: "v=2", `{"v":1,"id":"report"}`: "JOB:INSTANT"} {
		reply, err := srv.Conn().RequestWithContext(ctx, "cronce.node.web-1.output", []byte(body))
		if err != nil || !strings.Contains(string(reply.Data), want) {
			t.Errorf("%q is answered with %v, %v; want %q", body, reply, err, want)
		}
	}
	if len(heard) > 0 {
		t.Errorf("invalid requests reached the table: %q", heard)
	}
}

// The answer fits the server's limit, and its output is cut.
func TestAnAnswerOfOutputFitsTheServer(t *testing.T) {
	t.Parallel()
	full := exchange.OutputAnswer{V: codec.Version, Runs: true, Output: strings.Repeat("\x00", job.MaxOutput)}
	data, err := exchange.MarshalOutputAnswer(full, 16<<10)
	if err != nil || len(data) > 16<<10 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if a, err := exchange.DecodeOutputAnswer(data); err != nil || !strings.Contains(a.Output, "bytes cut") {
		t.Errorf("%v, %.100q", err, a.Output)
	}
}
