package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func TestSlotWaitEndsWithTheOutcomeOfTheSlot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.now = time.Now()
	f.define(t, plans.Definition{Job: job.Job{Name: "import", Schedule: job.OnDemand}})
	slot := func(token string) job.Slot { return job.Slot{Job: "import", Token: token} }
	began := time.Now().Add(-time.Minute)
	f.record(t, job.Record{
		Slot: slot("good"), Queue: "default", Node: "w1", Attempt: 2, Finished: began.Add(2 * time.Second),
		Attempts: []job.Attempt{{Number: 2, Node: "w1", Started: began, Finished: began.Add(2 * time.Second)}},
	}, job.Running, job.Succeeded)
	f.record(t, job.Record{Slot: slot("bad"), Queue: "default", Node: "w1", Finished: began, Error: "boom"}, job.Failed)
	f.record(t, job.Record{Slot: slot("gone"), Queue: "default", Node: "w1", Finished: began}, job.Cancelled)

	if out := f.ok(t, "slot", "wait", "import:@good"); out != "import:@good succeeded in 2s at attempt 2\n" {
		t.Errorf("got %q", out)
	}
	if out := f.ok(t, "slot", "wait", "import:@good", "-o", "json"); !strings.Contains(out, `"state":"succeeded","attempt":2`) || strings.Count(out, "\n") != 1 {
		t.Errorf("got %q", out)
	}
	for token, says := range map[string]string{"bad": `slot "import:@bad" failed: boom`, "gone": `slot "import:@gone" cancelled`} {
		r := f.run(t, "slot", "wait", "import:@"+token)
		if r.code != base.ExitFailed || !strings.HasPrefix(r.stdout, "import:@"+token+" ") || !strings.Contains(r.stderr, says) || !strings.Contains(r.stderr, "try: cronce slot show") {
			t.Errorf("%s: %+v", token, r)
		}
	}
	for _, command := range []string{"wait", "tail"} {
		f.run(t, "slot", command, "import:@never").oneError(t, base.ExitFailed, `slot "import:@never": there is no such slot: no run of job import with the key never`)
		f.run(t, "slot", command, "other:@never").oneError(t, base.ExitFailed, "no job named other")
	}
	f.run(t, "slot", "wait", "import").oneError(t, base.ExitUsage, "import")
	f.run(t, "slot", "wait", "import:@good", "--timeout", "0s").oneError(t, base.ExitUsage, "invalid --timeout 0s: must be positive")

	f.publish(t, "default", core.Message{Slot: slot("pending"), Node: "alice"})
	r := f.run(t, "slot", "wait", "import:@pending", "--timeout", "50ms")
	if r.code != base.ExitFailed || !strings.Contains(r.stderr, "no outcome after 50ms") || !strings.Contains(r.stderr, "cronce slot explain") {
		t.Errorf("pending: %+v", r)
	}
}

// A script must not take a Ctrl-C for an outcome.
func TestCtrlCEndsTheWaitingForAnOutcomeWithStatus130(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.now = time.Now()
	f.define(t, plans.Definition{Job: job.Job{Name: "import", Schedule: job.OnDemand}})
	f.publish(t, "default", core.Message{Slot: job.Slot{Job: "import", Token: "k"}, Node: "alice"})
	listeners := func() int {
		t.Helper()
		subs, err := f.server.Subsz(&server.SubszOptions{Subscriptions: true, Test: "cronce.event.failed.import"})
		if err != nil {
			t.Fatal(err)
		}
		return len(subs.Subs)
	}
	streams := listeners()
	for _, args := range [][]string{
		{"slot", "wait", "import:@k"}, {"slot", "tail", "import:@k"}, {"job", "trigger", "import", "--key", "k", "--wait"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() { ended <- execute(ctx, f.app(io.Discard, io.Discard), args) }()
		natstest.Eventually(t, "the command to wait for the outcome's event", func() bool { return listeners() > streams })
		interrupt()
		if code := <-ended; code != base.ExitInterrupted {
			t.Errorf("%q: exit status %d", args, code)
		}
		natstest.Eventually(t, "the end of its subscription", func() bool { return listeners() == streams })
	}
}
