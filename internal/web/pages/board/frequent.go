package board

import (
	"context"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

const (
	// minJobs is the number of jobs from which fillFrequent saves time.
	minJobs = 32

	// maxRecords bounds the records of the pass, for each job.
	maxRecords = 2 * Recent

	// enough is how many slots of a job the pass must find. A job with fewer runs rarely, and is read
	// by itself.
	enough = Recent / 3
)

// fillFrequent fills the jobs that run often with one pass over the newest records of all jobs, and
// returns the others. To read each job by itself costs the broker a pass for each job: more than a
// minute for 1,000 jobs that run each minute and a million records.
func (r reader) fillFrequent(ctx context.Context, empty []*Job) (rest []*Job, err error) {
	if len(empty) < minJobs {
		return empty, nil
	}
	found, missing := make(map[string][]client.SlotRow, len(empty)), len(empty)
	for _, j := range empty {
		found[j.Job] = make([]client.SlotRow, 0, Recent)
	}
	n := 0
	for s, err := range r.client.LastWritten(ctx) {
		switch rows, wanted := found[s.Job]; {
		case exchange.IsUnreadable(err):
			continue // one record cannot be read
		case err != nil:
			return nil, err
		case !wanted || len(rows) == Recent:
		default:
			if s.Output = ""; len(rows)+1 == Recent {
				missing--
			}
			found[s.Job] = append(rows, s)
		}
		if n++; missing == 0 || n == maxRecords*len(empty) {
			break
		}
	}
	for _, j := range empty {
		if j.merge(nil, found[j.Job]); len(j.Recent) < enough {
			rest = append(rest, j)
		}
	}
	return rest, nil
}
