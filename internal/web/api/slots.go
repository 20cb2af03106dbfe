package api

import (
	"context"
	"net/http"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/job"
)

// ofSlot is the input of an operation on one slot.
type ofSlot struct {
	ID string `path:"id" doc:"the ID of the slot, like report:2026-11-21T07:00:00Z"`
}

type slotsIn struct {
	paging
	Job   string      `query:"job" doc:"only of this job"`
	State []job.State `query:"state" enum:"pending,running,retrying,succeeded,failed,skipped,missed,expired,cancelled" doc:"only in one of these states: separated by commas, or repeated"`
	Since time.Time   `query:"since" doc:"only those planned at this time or later"`
	Ended time.Time   `query:"ended_since" doc:"only those that ended at this time or later, whenever they were planned"`
	New   bool        `query:"newest" doc:"the newest rows, up to limit, and not the oldest; still listed oldest first, and without a next page"`
}

func slotOperations() []operation {
	return []operation{
		newOperation("listSlots", http.MethodGet, "/slots", "List the slots, oldest first", listSlots).
			says("Each page reads the whole ledger, or only its newer part with since or ended_since: ask for large pages. With newest, it reads back from the last write until it has enough rows: with state, bound it with ended_since.").asks("job=report&state=pending,failed&limit=100"),
		newOperation("getSlot", http.MethodGet, "/slots/{id}", "Everything that is stored about a slot",
			func(ctx context.Context, c *call, in ofSlot) (client.SlotDetails, error) { return c.Slot(ctx, in.ID) }),
		newOperation("explainSlot", http.MethodGet, "/slots/{id}/explain", "What happened to a slot, or why it does not exist",
			func(ctx context.Context, c *call, in ofSlot) (client.Story, error) { return c.Explain(ctx, in.ID) }),
		newOperation("waitForSlot", http.MethodGet, "/slots/{id}/wait", "Wait for the outcome of a slot", waitForSlot).
			says("The slot may be planned and not due yet.").
			returns(answer{status: http.StatusOK, what: "The slot with its outcome"}, answer{status: http.StatusAccepted, what: "The slot has no outcome yet: ask again"}).
			asks("timeout=1s"),
		newOperation("retrySlot", http.MethodPost, "/slots/{id}:retry", "Give a slot that ended without success a new start",
			func(ctx context.Context, c *call, in ofSlot) (row.Retry, error) {
				r, err := c.Retry(ctx, in.ID)
				return row.Retried(r), err
			}).fails(fault.Conflict).curl("-X POST"),
		newOperation("cancelSlot", http.MethodPost, "/slots/{id}:cancel", "End a slot that waits or runs, for good", cancelSlot).
			says("The node of a running slot ends its handler and writes the outcome. A slot that ended first keeps its outcome: look at state.").
			returns(answer{status: http.StatusOK, what: "The slot has ended"},
				answer{status: http.StatusAccepted, what: "The slot was asked to end, and still runs: send the same request again to wait for its end"}).
			fails(fault.Conflict).curl("-X POST"),
	}
}

type waitIn struct {
	ofSlot
	Timeout time.Duration `query:"timeout" doc:"how long to wait, at most 5m, like 30s; left out: 30s"`
}

// waitForSlot has a timeout of its own, which may be longer than that of other requests.
func waitForSlot(_ context.Context, c *call, in waitIn) (client.SlotDetails, error) {
	const usual, most = 30 * time.Second, 5 * time.Minute
	if !c.query.Has("timeout") {
		in.Timeout = usual
	}
	if in.Timeout > most {
		return client.SlotDetails{}, wrong("timeout", "invalid timeout %v: want at most %v", in.Timeout, most)
	}
	c.extend(in.Timeout + c.api.cfg.Patience) // the read after the wait may take as long as any request
	ctx, cancel := context.WithTimeout(c.request, in.Timeout)
	defer cancel()
	defer context.AfterFunc(c.api.closing, cancel)()
	s, err := c.Wait(ctx, in.ID)
	if err == nil || ctx.Err() == nil || c.request.Err() != nil {
		return s, err
	}
	// The timeout has passed, or the server shuts down.
	now, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.api.cfg.Patience)
	defer cancel()
	if s, err = c.Expect(now, in.ID); err == nil && !s.State.Final() {
		c.status = http.StatusAccepted
	}
	return s, err
}

func listSlots(ctx context.Context, c *call, in slotsIn) (row.Page[client.SlotRow], error) {
	list, err := c.ListSlots(ctx, client.SlotFilter{
		Job: in.Job, States: in.State, Since: in.Since, EndedSince: in.Ended, After: in.cursor(), Limit: in.Limit, Newest: in.New,
	})
	return newPage(c, in.paging, list.Slots, list.Next, list.Unreadable), blame("after", err)
}

func cancelSlot(ctx context.Context, c *call, in ofSlot) (row.Cancel, error) {
	ctx, cancel := context.WithTimeout(ctx, c.api.cfg.Patience/2)
	defer cancel()
	asked := false
	s, err := c.Cancel(ctx, in.ID, func(client.CancelWait) { asked = true })
	if err != nil && asked && ctx.Err() != nil {
		c.status = http.StatusAccepted
		return row.Cancel{ID: in.ID, State: job.Running}, nil
	}
	return row.Cancelled(s), err
}
