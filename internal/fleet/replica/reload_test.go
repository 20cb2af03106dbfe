package replica

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func hourly(names ...string) (jobs []job.Job) {
	for _, name := range names {
		jobs = append(jobs, job.Job{Name: name, Schedule: "@hourly"})
	}
	return jobs
}

// It would write the jobs with force when the registry is there again, over all edits that were made
// meanwhile.
func TestAReloadEndsWhileTheRegistryDoesNotAnswer(t *testing.T) {
	t.Parallel()
	r, log := loggingReplica(t)
	if err := r.cfg.Store.JS.DeleteKeyValue(t.Context(), "cronce_jobs"); err != nil {
		t.Fatal(err)
	}
	r.patience = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience/4)
	defer cancel()
	err := r.Apply(ctx, hourly("report"), true)
	if !errors.Is(err, errSilent) || !errors.Is(err, job.ErrUnknown) {
		t.Errorf("Apply: %v", err)
	}
	if strings.Contains(log.String(), "a part of the jobs") {
		t.Errorf("nothing was written:\n%s", log)
	}
}

func TestAReloadThatFailsSaysWhatItHasWritten(t *testing.T) {
	t.Parallel()
	r, log := loggingReplica(t)
	jobs := hourly("first", "large")
	jobs[1].Payload = []byte(`"` + strings.Repeat("x", 2<<20) + `"`) // the server refuses it
	if err := r.Apply(t.Context(), jobs, true); err == nil || errors.Is(err, errSilent) {
		t.Fatalf("Apply: %v", err)
	}
	if got := log.String(); !strings.Contains(got, "jobs=2 written=1 written_jobs=[first] unknown=0 unknown_jobs=[]") {
		t.Errorf("the log does not say which jobs were written:\n%s", got)
	}
}

// The first write is answered, so that the others are sent together.
func TestAReloadThatFailsSaysWhatItMayHaveWritten(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	r, log := loggingReplica(t)
	relay := natstest.NewProxy(t, srv.ClientURL())
	js, err := jetstream.New(natstest.Connect(t, relay.URL()))
	if err != nil {
		t.Fatal(err)
	}
	store, err := kv.Open(t.Context(), js, kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r = New(Config{Store: store, Owner: plans.OwnerCode, Logger: r.log})
	r.patience = 2 * time.Second
	relay.Set(proxy.Fault{Sever: []byte("PUB $KV.cronce_jobs.second"), Then: &proxy.Fault{Deaf: true}})
	if err := r.Apply(t.Context(), hourly("first", "second", "third"), true); !errors.Is(err, errSilent) {
		t.Fatalf("Apply: %v", err)
	}
	if got := log.String(); !strings.Contains(got, "written=1 written_jobs=[first] unknown=2 unknown_jobs=\"[second third]\"") {
		t.Errorf("the log does not say which jobs may have been written:\n%s", got)
	}
}
