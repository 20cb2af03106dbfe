//go:build long

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// A lease that is shorter than an election, a stream with one replica, and a server that is down.
func TestDoctorOfACluster(t *testing.T) {
	t.Parallel()
	c := natstest.RunCluster(t)
	js := c.JetStream()
	kvtest.Open(t, js, kv.Options{Want: job.Settings{Lease: 3 * time.Second}})
	f := &fixture{cli: cli{env: map[string]string{"CRONCE_SERVER": c.URL()}}, url: c.URL()}
	f.finds(t, "lease ")
	once, err := js.Stream(t.Context(), "cronce_events")
	if err != nil {
		t.Fatal(err)
	}
	cfg := once.CachedInfo().Config
	cfg.Replicas = 1
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	_, found := f.doctor(t)
	if want := []string{"layout stream cronce_events", "replicas ", "lease "}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	if r := f.run(t, "setup", "--lease", "20s"); r.code != base.ExitDone {
		t.Fatalf("%+v", r)
	}
	f.finds(t)
	i := slices.IndexFunc(c.Servers, func(s *natstest.Server) bool { return s != c.Leader("cronce_events") })
	gone := c.Servers[i]
	gone.Stop()
	f.finds(t, "replica server "+gone.Name())
	gone.Start()
	f.finds(t)
}
