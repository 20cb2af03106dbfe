package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestNewRefusesInvalidOptionsAndWhatIsNotThere(t *testing.T) {
	t.Parallel()
	nc := natstest.Run(t).Conn()
	for what, option := range map[string]client.Option{
		"nil": nil, "namespace": client.WithNamespace("a.b"), "no namespace": client.WithNamespace(""), "domain": client.WithDomain("a b"),
		"operator": client.WithOperator("a\x1b[2Jb"), "no operator": client.WithOperator(""),
	} {
		if c, err := client.New(t.Context(), nc, option); c != nil || !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%s: %v, want it invalid", what, err)
		}
	}
	if _, err := client.New(t.Context(), nil); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("no connection: %v", err)
	}
	if _, err := client.New(t.Context(), nc); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("no namespace: %v", err)
	}
}

func TestNewOfALoginWithoutRightsIsDeniedWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, func(o *server.Options) {
		none := &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"none"}}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}}
		o.Users = []*server.User{{Username: "all", Password: "p"}, {Username: "guest", Password: "p", Permissions: none}}
	})
	kvtest.Open(t, natstest.JetStream(t, srv.Conn(nats.UserInfo("all", "p"))), kv.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := client.New(ctx, srv.Conn(nats.UserInfo("guest", "p"))); !errors.Is(err, job.ErrDenied) || ctx.Err() != nil {
		t.Errorf("%v, want it denied before its context ends: %v", err, ctx.Err())
	}
}

// An order whose context has ended before it was given is not carried out, and says so at once.
func TestOrdersWithAnEndedContextChangeNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	revision := s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	failed := job.Slot{Job: "report", Token: "failed"}
	s.record(t, failed, job.Failed)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, order := range map[string]func(context.Context) error{
		"trigger": func(ctx context.Context) error {
			_, err := s.Trigger(ctx, "report", client.TriggerOptions{})
			return err
		},
		"trigger a key": func(ctx context.Context) error {
			_, err := s.Trigger(ctx, "report", client.TriggerOptions{Key: "k"})
			return err
		},
		"trigger for later": func(ctx context.Context) error {
			_, err := s.Trigger(ctx, "report", client.TriggerOptions{Key: "l", At: time.Now().Add(time.Hour)})
			return err
		},
		"trigger many": func(ctx context.Context) error {
			_, err := s.TriggerMany(ctx, "report", []client.TriggerOptions{{}, {Key: "m"}})
			return err
		},
		"backfill": func(ctx context.Context) error {
			_, err := s.Backfill(ctx, "report", client.BackfillOptions{From: time.Now().Add(-2 * time.Hour)}, nil)
			return err
		},
		"pause":  func(ctx context.Context) error { _, err := s.Pause(ctx, "report"); return err },
		"resume": func(ctx context.Context) error { _, err := s.Resume(ctx, "report", client.ResumeOptions{}); return err },
		"remove": func(ctx context.Context) error { return s.Remove(ctx, "report", client.RemoveOptions{}) },
		"apply": func(ctx context.Context) error {
			_, err := s.Apply(ctx, []job.Job{{Name: "report", Schedule: "@daily"}}, client.ApplyOptions{})
			return err
		},
		"retry":  func(ctx context.Context) error { _, err := s.Retry(ctx, failed.ID()); return err },
		"cancel": func(ctx context.Context) error { _, err := s.Cancel(ctx, "report:@none", nil); return err },
		"wait":   func(ctx context.Context) error { _, err := s.Wait(ctx, "report:@none"); return err },
		"slot":   func(ctx context.Context) error { _, err := s.Slot(ctx, failed.ID()); return err },
		"tail": func(ctx context.Context) error {
			for _, err := range s.Tail(ctx, failed.ID()) {
				return err
			}
			return nil
		},
	} {
		begun := time.Now()
		if err := order(ended); !errors.Is(err, job.ErrUnknown) && !errors.Is(err, context.Canceled) || time.Since(begun) > 10*time.Second {
			t.Errorf("%s: %v after %v", what, err, time.Since(begun))
		}
	}
	if all := s.waiting(t); len(all) != 0 {
		t.Errorf("published: %+v", all)
	}
	if e, now, err := s.store.Jobs().Read(t.Context(), "report"); err != nil || now != revision || e.Paused {
		t.Errorf("the job is at revision %d, %v; want %d", now, err, revision)
	}
	if d, err := s.Slot(t.Context(), failed.ID()); err != nil || d.State != job.Failed {
		t.Errorf("the failed slot is %s, %v", d.State, err)
	}
}
