package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// lookForRewind reads whether nodes found, after the first judged slot fell due, that the
// ledger lost writes.
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

// wentBack describes the rewind.
func wentBack(r core.Rewound) string {
	return fmt.Sprintf("at %s nodes found that the ledger had lost writes (%s was at revision %d, then at %d): it was purged or restored; slots before that may have run more often than it records",
		r.Time.UTC().Format(time.RFC3339), r.Lost.Slot, r.Lost.Revision, r.Found)
}
