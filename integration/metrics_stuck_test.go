//go:build long && unix

package integration

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	library "github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/metrics"
)

// A Go handler that ignores its context cannot be ended. Only a program with the library can have one: "cronce
// run" can end each of its actions.
func TestStuckHandlerIsReportedAndEndsRunIfWanted(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	m, free := metrics.New(), make(chan struct{})
	defer close(free)
	c, err := library.New(t.Context(), s.nc, library.WithGrace(0), library.WithEndOnStuck(), library.WithObserver(m))
	if err == nil {
		err = c.Handle(job.Job{Name: "hangs", Schedule: "@every 1s", Timeout: time.Second, Retry: job.Retry{Attempts: 1}}, func(context.Context, job.Run) error {
			<-free
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	stuck := func() float64 {
		registry := prometheus.NewRegistry()
		registry.MustRegister(m)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "cronce_node_stuck_handlers" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return 0
	}
	eventually(t, "the metric to count the handler", func() bool { return stuck() == 1 })
	select {
	case err := <-ended:
		if !errors.Is(err, job.ErrStuck) || !strings.Contains(err.Error(), "hangs:") || !strings.Contains(err.Error(), "timeout of 1s") {
			t.Errorf("Run returned %v", err)
		}
	case <-time.After(natstest.Patience):
		t.Fatal("Run did not end")
	}
	var id string
	for _, row := range s.slots("--job", "hangs", "--state", "running") {
		id = row.ID
	}
	if p := s.command(0, "slot", "explain", id); !strings.Contains(p.stdout(), "its handler has not returned") {
		t.Errorf("explained as\n%s", p.stdout())
	}
}
