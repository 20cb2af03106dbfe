package control_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

// A command gives a silent broker some seconds. To compute the next slots of many jobs
// takes as long.
func TestListJobsIsNoSilenceOfTheBrokerWhileItComputes(t *testing.T) {
	t.Parallel()
	store, jobs, alive := memstore.New(), 50, 0
	for i := range jobs {
		d := core.Definition{Job: job.Job{Name: fmt.Sprint("job", i), Schedule: "0 7 * * *"}, Nonce: "n"}
		if _, err := store.Jobs().Write(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
	c := control.New(control.Config{
		Jobs: store.Jobs(), Nodes: store.Nodes(), Ledger: store.Ledger(), Alive: func() { alive++ },
		Now: func(context.Context) (time.Time, error) { return now, nil },
	})
	if _, err := c.ListJobs(t.Context(), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if alive < jobs {
		t.Errorf("said to be alive %d times for %d jobs", alive, jobs)
	}
}
