package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// lookForRewind learns whether nodes found, since the first slot that is judged fell
// due, that the ledger had lost writes.
func (v *verifier) lookForRewind(ctx context.Context) error {
	end, err := v.SweepEnds().Read(ctx)
	switch {
	case errors.Is(err, job.ErrNotFound), errors.Is(err, job.ErrInvalid), errors.Is(err, job.ErrVersion):
		return nil
	case err != nil:
		return err
	}
	v.Alive()
	if !end.Rewound.Time.Before(v.from) {
		v.rewound = end.Rewound
	}
	return nil
}

// wentBack says what was found.
func wentBack(r core.Rewound) string {
	return fmt.Sprintf("at %s nodes found that the ledger had lost writes (%s stood at revision %d, then at %d): it was purged or restored; slots up to then may have run more often than it knows",
		r.Time.UTC().Format(time.RFC3339), r.Lost.Slot, r.Lost.Revision, r.Found)
}
