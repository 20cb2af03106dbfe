package board

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

// A sweep reads what all jobs wrote last. To ask for each job by itself costs the broker a pass over
// the newest part of the ledger for each of them: with 1,000 jobs that run each minute, and a million
// records, more than a minute.
const (
	// sweepFrom is the number of jobs from which on a sweep is worth it.
	sweepFrom = 32

	// sweepMost bounds the records of a sweep, for each job.
	sweepMost = 2 * Recent

	// sweepEnough is how many runs a sweep must find of a job, or the job is asked for by itself: it
	// runs seldom.
	sweepEnough = Recent / 3
)

// sweep fills the jobs that run often, and returns the others.
func (r reader) sweep(ctx context.Context, b *Board, empty []*Job) (rest []*Job, err error) {
	if len(empty) < sweepFrom {
		return empty, nil
	}
	found, missing := make(map[string][]client.SlotRow, len(empty)), len(empty)
	for _, j := range empty {
		found[j.Job] = make([]client.SlotRow, 0, Recent)
	}
	n := 0
	for s, err := range r.client.LastWritten(ctx) {
		switch rows, wanted := found[s.Job]; {
		case errors.Is(err, job.ErrInvalid), errors.Is(err, job.ErrVersion):
			continue // a record that cannot be read
		case err != nil:
			return nil, err
		case !wanted || len(rows) == Recent:
		default:
			if s.Output = ""; len(rows)+1 == Recent {
				missing--
			}
			found[s.Job] = append(rows, s)
		}
		if n++; missing == 0 || n == sweepMost*len(empty) {
			break
		}
	}
	for _, j := range empty {
		if j.merge(nil, found[j.Job]); len(j.Recent) < sweepEnough {
			rest = append(rest, j)
		}
	}
	return rest, nil
}
