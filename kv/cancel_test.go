package kv_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// The node receives the claim and the cause of a valid request. Invalid requests do not
// reach its claims.
func TestANodeIsAskedToEndASlot(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s := open(t, srv.JetStream(), kv.Options{})
	ctx := within(t, 20*time.Second)
	ask := core.CancelRequest{ID: "report:@a*b c>\"d'", Fence: 7, By: "ali\x1b[31mce\r\n"}
	if _, err := s.AskCancel(ctx, "web-1", ask); !errors.Is(err, job.ErrUnknown) {
		t.Errorf("without a responder: %v, want %v", err, job.ErrUnknown)
	}
	var heard []string
	stop, err := s.ServeClaims("web-1", claims{cancel: func(key string, fence uint64, cause error) bool {
		heard = append(heard, key+" "+cause.Error())
		return fence == 7 && errors.Is(cause, job.ErrCancelled)
	}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.AskCancel(ctx, "web-1", ask)
	for errors.Is(err, job.ErrUnknown) && ctx.Err() == nil { // the node may not be subscribed yet
		answer, err = s.AskCancel(ctx, "web-1", ask)
	}
	if err != nil || !answer.Ending {
		t.Errorf("answer %+v, %v", answer, err)
	}
	if want := "report.t.a=2Ab=20c=3E=22d=27 cancelled by ali[31mce"; len(heard) != 1 || heard[0] != want {
		t.Errorf("heard %q, want %q", heard, want)
	}
	if answer, err := s.AskCancel(ctx, "web-1", core.CancelRequest{ID: "report:@x", Fence: 8, By: "alice"}); err != nil || answer.Ending {
		t.Errorf("answer %+v, %v", answer, err)
	}
	heard = nil
	for body, want := range map[string]string{
		"":                                 "invalid request",
		`{"v":2,"id":"report:@x"}`:         "v=2",
		`{"v":1,"id":"report"}`:            "JOB:INSTANT",
		`{"v":1,"id":"report:@x"}`:         "no fence",
		`{"v":1,"id":"re.*:@x","fence":1}`: "job",
	} {
		reply, err := srv.Conn().RequestWithContext(ctx, "cronce.node.web-1.cancel", []byte(body))
		if err != nil || !strings.Contains(string(reply.Data), want) {
			t.Errorf("%s is answered %s, %v; want %q in it", body, reply.Data, err, want)
		}
	}
	for _, node := range []string{"", "a.b", "*", ">", "a b"} {
		if _, err := s.AskCancel(ctx, node, ask); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("node %q: %v, want %v", node, err, job.ErrInvalid)
		}
	}
	if len(heard) != 0 {
		t.Errorf("the node heard %q", heard)
	}
	stop()
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := s.AskCancel(short, "web-1", ask); !errors.Is(err, job.ErrUnknown) {
		t.Errorf("after its end: %v, want %v", err, job.ErrUnknown)
	}
}

// claims is the set of claims of a process.
type claims struct {
	cancel func(key string, fence uint64, cause error) bool
	holds  map[string]bool // by slot key: whether the context of its handler has ended
}

func (c claims) Cancel(key string, fence uint64, cause error) bool {
	return c.cancel(key, fence, cause)
}

func (c claims) Holds(key string) (holds, ended bool) {
	ended, holds = c.holds[key]
	return holds, ended
}

// If a node does not understand the request, or does not exist, the answer is unknown.
func TestANodeIsAskedWhetherItHoldsAClaim(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s := open(t, srv.JetStream(), kv.Options{})
	ctx := within(t, time.Minute)
	slot := job.Slot{Job: "report", Token: "a*b"}
	if _, err := s.AskHolds(ctx, "web-1", slot, 7); !errors.Is(err, job.ErrUnknown) {
		t.Errorf("without a responder: %v, want %v", err, job.ErrUnknown)
	}
	held := map[string]bool{}
	stop, err := s.ServeClaims("web-1", claims{holds: held, cancel: func(string, uint64, error) bool {
		t.Error("a question ended a slot")
		return true
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, want := range []exchange.HoldsAnswer{{V: codec.Version}, {V: codec.Version, Holds: true}, {V: codec.Version, Holds: true, Ended: true}} {
		if want.Holds {
			held[slot.Key()] = want.Ended
		}
		answer, err := s.AskHolds(ctx, "web-1", slot, 7)
		for errors.Is(err, job.ErrUnknown) && ctx.Err() == nil { // the node may not be subscribed yet
			answer, err = s.AskHolds(ctx, "web-1", slot, 7)
		}
		if err != nil || answer != want {
			t.Errorf("answer %+v, %v; want %+v", answer, err, want)
		}
	}
	older, err := srv.Conn().Subscribe("cronce.node.old-1.cancel", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"v":1,"ending":false,"error":"invalid request: it names no fence"}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = older.Unsubscribe() }()
	if _, err := s.AskHolds(ctx, "old-1", slot, 7); !errors.Is(err, job.ErrUnknown) {
		t.Errorf("an older node's answer: %v, want %v", err, job.ErrUnknown)
	}
	if _, err := s.AskHolds(ctx, "a.b", slot, 7); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("node a.b: %v, want %v", err, job.ErrInvalid)
	}
}

// An answer in a format that this program does not know proves nothing. The asker then proves the
// owner dead, or asks again, as if there were no answer.
func TestAskCancelDecidesNothingFromAnAnswerItCannotRead(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s := open(t, srv.JetStream(), kv.Options{})
	for node, body := range map[string]string{"newer": `{"v":2,"ending":true}`, "without": `{"ending":true}`, "garbled": `{`} {
		sub, err := srv.Conn().Subscribe("cronce.node."+node+".cancel", func(m *nats.Msg) { _ = m.Respond([]byte(body)) })
		if err == nil {
			err = srv.Conn().FlushTimeout(5 * time.Second)
		}
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.AskCancel(within(t, 20*time.Second), node, core.CancelRequest{ID: "report:@x", Fence: 7, By: "alice"})
		if !errors.Is(err, job.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) || answer.Ending {
			t.Errorf("%s: answer %+v, %v", body, answer, err)
		}
		_ = sub.Unsubscribe()
	}
}
