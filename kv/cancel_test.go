package kv_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// TestANodeIsAskedToEndASlot: it hears which claim is meant and why; what is no
// such request never reaches it.
func TestANodeIsAskedToEndASlot(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s := open(t, srv.JetStream(), kv.Options{})
	ctx := within(t, 20*time.Second)
	ask := job.CancelRequest{ID: "report:@a*b c>\"d'", Fence: 7, By: "ali\x1b[31mce\r\n"}
	if _, err := s.AskCancel(ctx, "web-1", ask); !errors.Is(err, job.ErrUnknown) {
		t.Errorf("with nobody there: %v, want %v", err, job.ErrUnknown)
	}
	var heard []string
	stop, err := s.ServeCancel("web-1", func(key string, fence uint64, cause error) bool {
		heard = append(heard, key+" "+cause.Error())
		return fence == 7 && errors.Is(cause, job.ErrCancelled)
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.AskCancel(ctx, "web-1", ask)
	if err != nil || !answer.Ending {
		t.Errorf("answer %+v, %v", answer, err)
	}
	if want := "report.t.a=2Ab=20c=3E=22d=27 cancelled by ali[31mce"; len(heard) != 1 || heard[0] != want {
		t.Errorf("heard %q, want %q", heard, want)
	}
	if answer, err := s.AskCancel(ctx, "web-1", job.CancelRequest{ID: "report:@x", Fence: 8, By: "alice"}); err != nil || answer.Ending {
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
