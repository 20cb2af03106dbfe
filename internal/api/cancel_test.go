package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// running is a fleet with one slot, whose handler ignores that it was cancelled. If it is silent, the broker does not
// answer.
type running struct {
	attach.Ledger
	attach.Fleet
	silent bool
}

func (r running) Read(ctx context.Context, s job.Slot) (job.Record, uint64, error) {
	if r.silent {
		<-ctx.Done()
		return job.Record{}, 0, job.ErrUnknown
	}
	return job.Record{Slot: s, State: job.Running, Node: "n", Attempt: 1}, 3, nil
}

func (running) AskCancel(context.Context, string, core.CancelRequest) (core.CancelAnswer, error) {
	return core.CancelAnswer{Ending: true}, nil
}

func TestCancelSaysThatASlotStillRunsOnlyIfItWasAskedToEnd(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := running{silent: silent}
			c := client.Attach(attach.Parts{Ledger: r, Fleet: r, Now: func(context.Context) (time.Time, error) { return time.Now(), nil }})
			_, err := cancelSlot(t.Context(), c, SlotRequest{ID: "report:@one"})
			if !errors.Is(err, job.ErrUnknown) || errors.Is(err, errStillRuns) == silent {
				t.Errorf("broker that is silent: %v: error %v", silent, err)
			}
		})
	}
}

func TestUnansweredTriggerWithoutAKeySaysThatARepetitionIsAnotherRun(t *testing.T) {
	t.Parallel()
	c := client.Attach(attach.Parts{Joined: func(context.Context, string) error { return job.ErrUnknown }})
	for key, another := range map[string]bool{"": true, "k": false} {
		_, err := trigger(t.Context(), c, TriggerRequest{Job: "report", Key: key})
		if fault.Of(err) != fault.Unknown || strings.Contains(line(err), "another run") != another {
			t.Errorf("key %q: %v", key, err)
		}
	}
}
