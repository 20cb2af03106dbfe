//go:build long

package job_test

import (
	"testing"

	"github.com/cronce-io/cronce/job"
)

func TestSecondsAgreeWithASecondImplementationAroundTransitions(t *testing.T) {
	t.Parallel()
	for _, name := range judgedZones {
		loc := zone(t, name)
		for i, change := range transitionsOf(t, name) {
			if i%29 != 0 && name != "Pacific/Apia" {
				continue
			}
			w := newWalk(loc, 1, change-2*3600-margin, change+2*3600+margin)
			for _, schedule := range []string{"*/7 59,0 0-3 * * *", "30 */13 * * * *", "59 59 23,0,1,2 * * *"} {
				agree(t, job.Plan{Schedule: schedule}, loc, w)
			}
		}
	}
}
