package board_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/web/pages/board"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// A board of many jobs, which is read in one pass, has the slots that a request for each job
// returns.
func TestBoardOfManyJobsHasTheNewestSlotsOfEach(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	store := kvtest.Open(t, s.JetStream(), kv.Options{})
	begin := time.Now().UTC().Truncate(time.Minute).Add(-2 * time.Hour)
	for i := range 40 {
		name := fmt.Sprintf("job-%02d", i)
		d := plans.Definition{Job: job.Job{Name: name, Schedule: "* * * * *"}, Since: begin, Nonce: "n" + name}
		if _, err := store.Jobs().Write(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
		for k := range 2 * i { // up to 78
			succeed(t, store, name, begin.Add(time.Duration(k+1)*time.Minute))
		}
	}
	c, err := client.New(t.Context(), s.Conn())
	if err != nil {
		t.Fatal(err)
	}
	source := board.NewSource(t.Context(), c)
	check(t, c, source, func(i int) int { return min(2*i, board.Recent) })
	// The next board has what was written since, even if that is more than a board keeps.
	for k := range 3 * board.Recent {
		succeed(t, store, "job-01", begin.Add(time.Duration(k+3)*10*time.Second))
	}
	succeed(t, store, "job-02", begin.Add(time.Hour))
	check(t, c, source, func(i int) int {
		switch i {
		case 1:
			return board.Recent
		case 2:
			return 5
		}
		return min(2*i, board.Recent)
	})
}

func succeed(t *testing.T, store *kv.Store, name string, at time.Time) {
	t.Helper()
	r := job.Record{
		Slot: job.NewSlot(name, at), State: job.Succeeded, Due: at, Published: at, Node: "web1-1", Queue: "default", Attempt: 1, Nonce: "n", Finished: at.Add(time.Second),
		Attempts: []job.Attempt{{Number: 1, Node: "web1-1", Fence: 1, Started: at}},
	}
	if _, err := store.Ledger().Write(t.Context(), r, 0); err != nil {
		t.Fatal(err)
	}
}

// check compares a new board with the newest slots of each job. slots says how many job i has.
func check(t *testing.T, c *client.Client, source *board.Source, slots func(i int) int) {
	t.Helper()
	b, err := source.Get(t.Context(), time.Now(), false)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range b.Jobs {
		list, err := c.ListSlots(t.Context(), client.SlotFilter{Job: j.JobRow.Job, Newest: true, Limit: board.Recent})
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, s := range list.Slots {
			want = append(want, s.ID)
		}
		for _, r := range j.Recent {
			got = append(got, r.ID)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || len(got) != slots(i) {
			t.Errorf("%s has %d slots: %q, want %q", j.JobRow.Job, len(got), got, want)
		}
	}
}
