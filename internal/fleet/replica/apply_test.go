package replica_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// many returns n jobs of which none is due soon.
func many(n int) []job.Job {
	jobs := make([]job.Job, n)
	for i := range jobs {
		jobs[i] = job.Job{Name: fmt.Sprintf("job-%04d", i), Schedule: "0 0 1 1 *"}
	}
	return jobs
}

// applier returns a replica that does not run, and its store.
func (s *site) applier(nc *nats.Conn, log *slog.Logger) (*replica.Replica, *kv.Store) {
	s.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		s.Fatal(err)
	}
	store := kvtest.Open(s, js, kv.Options{})
	return replica.New(replica.Config{Store: store, Owner: "file", Logger: log}), store
}

func TestApplyReadsManyJobsInOneRequestAndWritesNoneThatIsEqual(t *testing.T) {
	s := newSite(t)
	r, store := s.applier(s.srv.Conn(), nil)
	jobs := many(1000)
	if err := r.Apply(t.Context(), jobs, false); err != nil {
		t.Fatal(err)
	}
	written, err := store.Jobs().List(t.Context())
	if err != nil || len(written) != len(jobs) {
		t.Fatalf("%d jobs are stored, %v; want %d", len(written), err, len(jobs))
	}
	for i, e := range written {
		if e.Job.Name != jobs[i].Name {
			t.Fatalf("entry %d is %s, want %s: jobs are written in the order of the file", i, e.Job.Name, jobs[i].Name)
		}
	}
	// This connection counts the requests to the registry from here on.
	tap := s.srv.Conn()
	var requests atomic.Int64
	for _, subject := range []string{"$JS.API.>", "$KV.cronce_jobs.>"} {
		if _, err := tap.Subscribe(subject, func(*nats.Msg) { requests.Add(1) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := tap.Flush(); err != nil {
		t.Fatal(err)
	}
	again, _ := s.applier(s.srv.Conn(), nil)
	if err := again.Apply(t.Context(), jobs, false); err != nil {
		t.Fatal(err)
	}
	if err := tap.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := requests.Load(); n > 50 {
		t.Errorf("%d requests for %d jobs that are stored already, want one for many jobs", n, len(jobs))
	}
	if last, err := store.Jobs().Revision(t.Context()); err != nil || last != written[len(written)-1].Revision {
		t.Errorf("revision %d, %v: a job without a change was written", last, err)
	}
}

func TestApplySendsWritesWithoutWaitingForEachAnswerAndEndsWithItsContext(t *testing.T) {
	s := newSite(t)
	relay := natstest.NewProxy(t, s.srv.ClientURL())
	r, _ := s.applier(natstest.Connect(t, relay.URL()), nil)
	jobs := many(200)
	// From the write of job-0100 on, the replica gets no answer.
	const unanswered = "$KV.cronce_jobs.job-01"
	relay.Set(proxy.Fault{Sever: []byte("PUB " + unanswered), Then: &proxy.Fault{Deaf: true}})
	// Apply may send a write twice before another one: in a batch that times out, and then singly.
	copies, thrice := map[string]int{}, make(chan string, 1)
	tap := s.srv.Conn()
	if _, err := tap.Subscribe("$KV.cronce_jobs.>", func(m *nats.Msg) {
		if copies[m.Subject]++; copies[m.Subject] == 3 && strings.HasPrefix(m.Subject, unanswered) && len(copies) < len(jobs) {
			select {
			case thrice <- m.Subject:
			default:
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := tap.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var applying sync.WaitGroup
	var err error
	applying.Go(func() { err = r.Apply(ctx, jobs, false) })
	_, other := s.applier(s.srv.Conn(), nil)
	natstest.Eventually(t, "all jobs to be stored although no answer comes", func() bool {
		select {
		case subject := <-thrice:
			t.Fatalf("%s was sent three times before another write was sent once", subject)
		default:
		}
		entries, err := other.Jobs().List(t.Context())
		return err == nil && len(entries) == len(jobs)
	})
	cancel()
	applying.Wait()
	if err == nil {
		t.Error("Apply returned no error although its context ended")
	}
}

func TestApplyOfReplicasAtOnceEndsWithEachJobOnce(t *testing.T) {
	s := newSite(t)
	jobs := many(300)
	var applying sync.WaitGroup
	for range 3 {
		r, _ := s.applier(s.srv.Conn(), nil)
		applying.Go(func() {
			if err := r.Apply(t.Context(), jobs, false); err != nil {
				t.Error(err)
			}
		})
	}
	applying.Wait()
	_, store := s.applier(s.srv.Conn(), nil)
	entries, err := store.Jobs().List(t.Context())
	if err != nil || len(entries) != len(jobs) {
		t.Fatalf("%d jobs, %v; want %d", len(entries), err, len(jobs))
	}
	if last, err := store.Jobs().Revision(t.Context()); err != nil || last != uint64(len(jobs)) {
		t.Errorf("revision %d, %v: want one write for each job", last, err)
	}
}
