package replica_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// text is a log that is read while it is written.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *text) has(words string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), words)
}

func removeAll(t *testing.T, js jetstream.JetStream, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
}

// The server's store was replaced by an empty one, or a part of it was removed.
func TestANodeSetsUpAMissingNamespaceAgain(t *testing.T) {
	for name, gone := range map[string][]string{
		"everything":  layout.Streams("cronce"),
		"the jobs":    {"KV_cronce_jobs"},
		"the nodes":   {"KV_cronce_nodes"},
		"both":        {"KV_cronce_nodes", "KV_cronce_jobs"},
		"no producer": layout.Streams("cronce"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			var ran atomic.Int64
			var log text
			handler := func(context.Context, job.Run) error { ran.Add(1); return nil }
			edit := func(c *replica.Config) {
				c.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(&log, t.Output()), nil))
			}
			nc, _, ended := s.replica(handler, edit)
			var workerEnded <-chan error
			if name == "no producer" {
				_, _, workerEnded = s.replica(handler, func(c *replica.Config) { edit(c); c.Produce = false })
			}
			checkRuns := func() {
				t.Helper()
				select {
				case err := <-ended:
					t.Fatalf("Run has ended: %v", err)
				case err := <-workerEnded:
					t.Fatalf("Run of the worker has ended: %v", err)
				default:
				}
			}
			natstest.Eventually(t, "slots to run", func() bool { checkRuns(); return ran.Load() > 1 })
			js := natstest.JetStream(t, nc)
			removeAll(t, js, gone...)
			natstest.Eventually(t, "the namespace to be set up again", func() bool { checkRuns(); return log.has("it is set up again") })
			before := ran.Load()
			natstest.Eventually(t, "slots to run again", func() bool { checkRuns(); return ran.Load() > before+1 })
			store := kvtest.Open(t, js, kv.Options{ReadOnly: true})
			if got := store.Settings().Lease; got != s.lease {
				t.Errorf("the lease is %v now, want %v as before", got, s.lease)
			}
			if _, _, err := store.Jobs().Read(t.Context(), "report"); err != nil {
				t.Errorf("the job: %v", err)
			}
			checkRuns()
		})
	}
}

// A login that may not create streams, nor store settings.
func TestANodeThatMayNotSetUpWaitsUntilTheNamespaceIsComplete(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, func(o *server.Options) {
		deny := &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.CREATE.>", "$KV.cronce_state.settings"}}
		o.Users = []*server.User{
			{Username: "all", Password: "p"},
			{Username: "some", Password: "p", Permissions: &server.Permissions{Publish: deny}},
		}
	})
	all := srv.JetStream(nats.UserInfo("all", "p"))
	lease := 2 * time.Second
	kvtest.Open(t, all, kv.Options{Want: job.Settings{Lease: lease}})
	var ran atomic.Int64
	var log text
	nc := srv.Conn(nats.UserInfo("some", "p"))
	store := kvtest.Open(t, natstest.JetStream(t, nc), kv.Options{})
	r := replica.New(replica.Config{
		Store: store, Owner: "code", Produce: true, Queues: []string{"default"},
		Jobs:     []job.Job{{Name: "report", Schedule: "* * * * * *"}},
		Handler:  func(string) job.Handler { return func(context.Context, job.Run) error { ran.Add(1); return nil } },
		Handlers: func() []string { return []string{"report"} }, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run has ended: %v", err)
		}
	})
	defer running.Wait()
	defer stop()
	natstest.Eventually(t, "slots to run", func() bool { return ran.Load() > 1 })
	removeAll(t, all, layout.Streams("cronce")...)
	natstest.Eventually(t, "a log of what is missing", func() bool {
		return log.has("waiting for the namespace to be set up again") && log.has("cronce_ledger") && log.has("cronce setup, with a login that may") && log.has("STREAM.CREATE")
	})
	// The new namespace has other settings than before. The node keeps its own.
	if _, err := space.Setup(t.Context(), all, kv.Options{Queues: []string{"default"}}); err != nil {
		t.Fatal(err)
	}
	before := ran.Load()
	natstest.Eventually(t, "slots to run again", func() bool { return ran.Load() > before+1 })
}

func TestAStoreReportsThatTheStoredSettingsDiffer(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	store := kvtest.Open(t, js, kv.Options{Want: job.Settings{Lease: 6 * time.Second}})
	if stored, ours, err := store.CompareSettings(t.Context()); err != nil || len(stored)+len(ours) > 0 {
		t.Errorf("they differ: %v, %v, %v", stored, ours, err)
	}
	removeAll(t, js, "KV_cronce_state")
	if _, _, err := store.CompareSettings(t.Context()); !errors.Is(err, wire.ErrGone) {
		t.Errorf("without a bucket: %v, want that it is gone", err)
	}
	if _, err := space.Setup(t.Context(), js, kv.Options{}); err != nil {
		t.Fatal(err)
	}
	stored, ours, err := store.CompareSettings(t.Context())
	if err != nil || strings.Join(stored, " ") != "lease 20s" || strings.Join(ours, " ") != "lease 6s" {
		t.Errorf("stored %v, ours %v, %v", stored, ours, err)
	}
}
