package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// The request is right. What it needs was stored by another program, and the sender cannot mend it by
// another request.
func TestAStoredValueThatCannotBeReadIsNoFaultOfTheRequest(t *testing.T) {
	t.Parallel()
	broken := fmt.Errorf("%w record: it has no state", job.ErrInvalid)
	for _, err := range []error{
		&kv.UnreadableError{Bucket: "cronce_ledger", Key: "report.t.k", Err: broken},
		fmt.Errorf("job report: %w", &plans.EntryError{Name: "report", Err: broken}),
		fmt.Errorf("trigger: %w", &stream.UnreadableTimerError{Slot: job.Slot{Job: "report", Token: "k"}, Err: broken}),
		errors.Join(errors.New("another"), &plans.EntryError{Name: "report", Err: broken}),
	} {
		if code := fault.Of(err); code != fault.Internal {
			t.Errorf("%v: %s, want %s", err, code.Name, fault.Internal.Name)
		}
	}
	if code := fault.Of(broken); code != fault.Invalid {
		t.Errorf("an invalid request: %s", code.Name)
	}
}

// A server before 2.12 has no message schedules, and a namespace that it created has no stream for them.
// The request is right, and it changed nothing: the caller may send it at its time instead.
func TestATriggerForLaterOnAnOldServerIsAConflict(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		fmt.Errorf("trigger: %w", errors.ErrUnsupported),
		fmt.Errorf("trigger: %w", stream.ErrNoTimers),
	} {
		if code := fault.Of(err); code != fault.Conflict {
			t.Errorf("%v: %s, want %s", err, code.Name, fault.Conflict.Name)
		}
	}
}
