package kv_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
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
	open(t, s.JetStream(nats.UserInfo("all", "p")), kv.Options{})
	store := open(t, s.JetStream(nats.UserInfo("some", "p")), kv.Options{})
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

// A node's store repeats a write that is not permitted. An operator learns it at once.
func TestAWriteOfAnOperatorThatIsNotPermittedEnds(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) {
		deny := &server.SubjectPermission{Deny: []string{"$KV.cronce_ledger.>", "$KV.cronce_state.lock.>"}}
		o.Users = []*server.User{
			{Username: "all", Password: "p"},
			{Username: "some", Password: "p", Permissions: &server.Permissions{Publish: deny}},
		}
	})
	open(t, s.JetStream(nats.UserInfo("all", "p")), kv.Options{})
	node := open(t, s.JetStream(nats.UserInfo("some", "p")), kv.Options{})
	operator := node.ForOperator()
	ctx := within(t, time.Minute)
	if _, err := operator.Ledger().Write(ctx, kvtest.Record(1, "1"), 0); !errors.Is(err, job.ErrDenied) {
		t.Errorf("a record gives %v, want that it is not permitted", err)
	}
	if _, err := operator.Locks().Write(ctx, core.Lock{Job: "report", Nonce: "1"}, 0); !errors.Is(err, job.ErrDenied) {
		t.Errorf("a lock gives %v, want that it is not permitted", err)
	}
	if ctx.Err() != nil {
		t.Error("it took as long as it might")
	}
	short := within(t, 200*time.Millisecond)
	if _, err := node.Ledger().Write(short, kvtest.Record(2, "1"), 0); errors.Is(err, job.ErrDenied) || !errors.Is(err, job.ErrUnknown) {
		t.Errorf("the node's write gives %v, want that it is unknown", err)
	}
}

// A login that connects with another inbox prefix than its own gets no answers at all.
func TestAnInboxThatIsNotPermittedIsDenied(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "caller", Password: "p", Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.cronce.>"}},
		}}}
	})
	for _, readOnly := range []bool{true, false} {
		_, err := kv.Open(within(t, time.Minute), s.JetStream(nats.UserInfo("caller", "p")), kv.Options{ReadOnly: readOnly})
		if !errors.Is(err, job.ErrDenied) || !strings.Contains(err.Error(), "nats.CustomInboxPrefix") {
			t.Errorf("it opens with %v", err)
		}
	}
	if _, err := kv.Open(t.Context(), s.JetStream(nats.UserInfo("caller", "p"), nats.CustomInboxPrefix("_INBOX.cronce")), kv.Options{}); err != nil {
		t.Errorf("with its own prefix: %v", err)
	}
}

// A read of the records beside another that the login does not permit fails at once, before its
// context ends.
func TestAReadOfRecordsBesideAnotherThatIsNotPermittedEnds(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) {
		deny := &server.SubjectPermission{Deny: []string{"$JS.API.DIRECT.GET.KV_cronce_ledger"}}
		o.Users = []*server.User{
			{Username: "all", Password: "p"},
			{Username: "some", Password: "p", Permissions: &server.Permissions{Publish: deny}},
		}
	})
	open(t, s.JetStream(nats.UserInfo("all", "p")), kv.Options{})
	store := open(t, s.JetStream(nats.UserInfo("some", "p")), kv.Options{})
	ctx := within(t, time.Minute)
	own := kvtest.Record(1, "1")
	revision, err := store.Ledger().Write(ctx, own, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Ledger().Beside(ctx, own.Slot, revision, []job.Slot{kvtest.Record(2, "").Slot}); !errors.Is(err, job.ErrDenied) {
		t.Errorf("it gives %v, want that it is not permitted", err)
	}
	if ctx.Err() != nil {
		t.Error("it took as long as it might")
	}
}

// A pass over the changes of the ledger that the login does not permit fails at once, before its context
// ends.
func TestAPassOverChangesThatIsNotPermittedEnds(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) {
		deny := &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.CREATE.KV_cronce_ledger.>"}}
		o.Users = []*server.User{
			{Username: "all", Password: "p"},
			{Username: "some", Password: "p", Permissions: &server.Permissions{Publish: deny}},
		}
	})
	open(t, s.JetStream(nats.UserInfo("all", "p")), kv.Options{})
	store := open(t, s.JetStream(nats.UserInfo("some", "p")), kv.Options{})
	ctx := within(t, time.Minute)
	var at wire.Cursor
	for _, err := range store.Ledger().Changes(ctx, &at) {
		if !errors.Is(err, job.ErrDenied) {
			t.Errorf("it gives %v, want that it is not permitted", err)
		}
		if ctx.Err() != nil {
			t.Error("it took as long as it might")
		}
		return
	}
	t.Error("it gives no error")
}
