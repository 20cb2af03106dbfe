package kv_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// A write to the registry that the login does not permit fails at once, before its
// context ends.
func TestAWriteOfTheRegistryThatIsNotPermittedEnds(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) {
		deny := &server.SubjectPermission{Deny: []string{"$KV.cronce_jobs.report"}}
		o.Users = []*server.User{
			{Username: "all", Password: "p"},
			{Username: "some", Password: "p", Permissions: &server.Permissions{Publish: deny}},
		}
	})
	if _, err := kv.Open(t.Context(), s.JetStream(nats.UserInfo("all", "p")), kv.Options{}); err != nil {
		t.Fatal(err)
	}
	store, err := kv.Open(t.Context(), s.JetStream(nats.UserInfo("some", "p")), kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, time.Minute)
	if _, err := store.Jobs().Write(ctx, kvtest.Definition("report", "1"), 0); !errors.Is(err, job.ErrDenied) || !errors.Is(err, job.ErrUnknown) {
		t.Errorf("a write gives %v, want that it is not permitted", err)
	}
	if err := store.Jobs().Delete(ctx, "report", 1); !errors.Is(err, job.ErrDenied) {
		t.Errorf("a removal gives %v, want that it is not permitted", err)
	}
	// The earlier complaint named another subject, so this write succeeds.
	if _, err := store.Jobs().Write(ctx, kvtest.Definition("other", "1"), 0); err != nil {
		t.Error(err)
	}
	if ctx.Err() != nil {
		t.Error("it took as long as it might")
	}
}
