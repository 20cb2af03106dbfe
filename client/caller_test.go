package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// callersServer has the login "all", and a caller of job report.
func callersServer(t *testing.T) (connect func(login string, opts ...nats.Option) *nats.Conn) {
	t.Helper()
	grants, err := layout.Access{Roles: []layout.Role{layout.RoleCaller}, Jobs: []string{"report"}}.Grants()
	if err != nil {
		t.Fatal(err)
	}
	p := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{}}
	for _, g := range grants {
		p.Publish.Allow, p.Subscribe.Allow = append(p.Publish.Allow, g.Publish...), append(p.Subscribe.Allow, g.Subscribe...)
	}
	s := natstest.Run(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "all", Password: "p"}, {Username: "caller", Password: "p", Permissions: p}}
	})
	return func(login string, opts ...nats.Option) *nats.Conn {
		return s.Conn(append(opts, nats.UserInfo(login, "p"), nats.CustomInboxPrefix(layout.InboxPrefix("cronce")))...)
	}
}

// fleet runs the jobs report and other, each with a handler, with all rights.
func fleet(t *testing.T, nc *nats.Conn) *client.Client {
	t.Helper()
	s, err := cronce.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"report", "other"} {
		err := s.Handle(job.Job{Name: name, Schedule: job.OnDemand}, func(_ context.Context, r job.Run) error {
			_, err := r.Output.Write(r.Payload)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	natstest.Eventually(t, "the fleet to be ready", func() bool { return s.Ready() == nil })
	return s.Client()
}

func TestCallerMayTriggerAndWaitForNamedJobsAndNothingElse(t *testing.T) {
	t.Parallel()
	connect := callersServer(t)
	all := fleet(t, connect("all"))
	other, err := all.Trigger(t.Context(), "other", client.TriggerOptions{Key: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}

	denied := make(chan error, 100)
	nc := connect("caller", nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case denied <- err:
		default:
		}
	}))
	c, err := client.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.Trigger(t.Context(), "report", client.TriggerOptions{Key: "a", Payload: []byte(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := run.Wait(t.Context()); err != nil || got.State != job.Succeeded || got.Output != `{"n":1}` {
		t.Errorf("%+v, %v; want it succeeded", got, err)
	}
	if got, err := c.Wait(t.Context(), "report:@a"); err != nil || got.State != job.Succeeded {
		t.Errorf("by its ID: %+v, %v", got, err)
	}
	if again, err := c.Trigger(t.Context(), "report", client.TriggerOptions{Key: "a"}); err != nil || again.New || again.State != job.Succeeded {
		t.Errorf("the same key again: %+v, %v", again, err)
	}
	later := client.TriggerOptions{Key: "later", At: time.Now().Add(time.Hour)}
	many, err := c.TriggerMany(t.Context(), "report", []client.TriggerOptions{{Key: "a"}, {Key: "b"}, {}, later})
	if err != nil || len(many) != 4 || many[0].New || !many[1].New || !many[2].New || !many[3].New {
		t.Fatalf("many: %+v, %v", many, err)
	}
	for _, r := range many[:3] {
		if got, err := r.Wait(t.Context()); err != nil || got.State != job.Succeeded {
			t.Errorf("%s: %+v, %v", r.ID(), got, err)
		}
	}

	if got, err := c.Slot(t.Context(), run.ID()); err != nil || got.State != job.Succeeded {
		t.Errorf("its slot: %+v, %v", got, err)
	}
	if got, err := run.Payload(t.Context()); err != nil || string(got) != `{"n":1}` {
		t.Errorf("its payload: %s, %v", got, err)
	}

	// A run that has not begun: it has no record.
	if got, err := c.Slot(t.Context(), many[3].ID()); err != nil || got.State != job.Pending {
		t.Errorf("the slot of the run of later: %+v, %v", got, err)
	}
	if got, err := many[3].Payload(t.Context()); err != nil || got != nil {
		t.Errorf("the payload of the run of later: %s, %v", got, err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.Wait(short, many[3].ID()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the wait for the run of later: %v", err)
	}
	if err := nc.Publish("the.first.denied", nil); err != nil {
		t.Fatal(err)
	}
	if err := <-denied; !strings.Contains(err.Error(), "the.first.denied") {
		t.Errorf("a caller that only triggers and waits sent what it may not: %v", err)
	}

	trigger := func(ctx context.Context, name string) error {
		_, err := c.Trigger(ctx, name, client.TriggerOptions{Key: "x"})
		return err
	}
	for what, order := range map[string]func(context.Context) error{
		"trigger another job":    func(ctx context.Context) error { return trigger(ctx, "other") },
		"wait for another's run": func(ctx context.Context) error { _, err := c.Wait(ctx, other.ID()); return err },
		"read another's slot":    func(ctx context.Context) error { _, err := c.Slot(ctx, other.ID()); return err },
		"list jobs":              func(ctx context.Context) error { _, err := c.Jobs(ctx, client.JobFilter{}); return err },
		"list slots":             func(ctx context.Context) error { _, err := c.ListSlots(ctx, client.SlotFilter{}); return err },
		"list nodes":             func(ctx context.Context) error { _, err := c.Nodes(ctx, client.NodeFilter{}); return err },
		"pause its job":          func(ctx context.Context) error { _, err := c.Pause(ctx, "report"); return err },
		"remove its job":         func(ctx context.Context) error { return c.Remove(ctx, "report", client.RemoveOptions{}) },
		"apply": func(ctx context.Context) error {
			_, err := c.Apply(ctx, []job.Job{{Name: "report", Schedule: "@daily"}}, client.ApplyOptions{})
			return err
		},
		"retry its slot":  func(ctx context.Context) error { _, err := c.Retry(ctx, run.ID()); return err },
		"cancel its slot": func(ctx context.Context) error { _, err := c.Cancel(ctx, many[3].ID(), nil); return err },
	} {
		// A request that is not answered is sent again and again, until its context ends.
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if err := order(ctx); !errors.Is(err, job.ErrDenied) || ctx.Err() != nil {
			t.Errorf("%s: %v, want it denied before its context ends: %v", what, err, ctx.Err())
		}
		cancel()
	}
	if got, err := all.Slot(t.Context(), many[3].ID()); err != nil || got.State != job.Pending {
		t.Errorf("the run for later is %+v, %v", got, err)
	}
}

// A timer chooses in its headers what the server does with rights of its own.
func TestACallersRunForLaterIsOrderedFromANode(t *testing.T) {
	t.Parallel()
	connect := callersServer(t)
	all := fleet(t, connect("all"))
	nc := connect("caller")
	c, err := client.New(t.Context(), nc, client.WithOperator("shop"))
	if err != nil {
		t.Fatal(err)
	}
	order := client.TriggerOptions{Key: "x", At: time.Now().Add(time.Hour), Payload: []byte(`{"n":1}`)}
	for i, isNew := range []bool{true, false} {
		run, err := c.Trigger(t.Context(), "report", order)
		if err != nil || run.New != isNew || !run.Due.Equal(order.At) || run.Queue != job.DefaultQueue || run.State != job.Pending {
			t.Errorf("order %d: %+v, %v", i, run, err)
		}
	}
	run, err := all.Slot(t.Context(), "report:@x")
	if err != nil || run.State != job.Pending || run.Publisher != "shop" {
		t.Errorf("an operator sees %+v, %v", run, err)
	}
	s := kvtest.Open(t, natstest.JetStream(t, nc), kv.Options{ReadOnly: true})
	timer := stream.Timer{Message: core.Message{Slot: job.Slot{Job: "report", Token: "y"}, Node: "n", Due: order.At}, Queue: job.DefaultQueue}
	if _, err := s.Timers().Set(t.Context(), timer, 0); !errors.Is(err, job.ErrDenied) {
		t.Errorf("it sets a timer itself: %v", err)
	}
	for _, o := range []struct {
		job  string
		want error
	}{{"nosuch", job.ErrDenied}, {"other", job.ErrDenied}} {
		if _, err := c.Trigger(t.Context(), o.job, order); !errors.Is(err, o.want) {
			t.Errorf("a run of %s: %v, want %v", o.job, err, o.want)
		}
	}
}

func TestACallersRunForLaterNeedsANode(t *testing.T) {
	t.Parallel()
	connect := callersServer(t)
	kvtest.Open(t, natstest.JetStream(t, connect("all")), kv.Options{})
	operator, err := client.New(t.Context(), connect("all"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Apply(t.Context(), []job.Job{{Name: "report", Schedule: job.OnDemand}}, client.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(t.Context(), connect("caller"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Trigger(t.Context(), "report", client.TriggerOptions{Key: "x", At: time.Now().Add(time.Hour)})
	if err == nil || !strings.Contains(err.Error(), "start one with the login of a producer") {
		t.Errorf("without a node: %v", err)
	}
}
