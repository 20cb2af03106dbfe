package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
)

// distant is a registry on a broker that is 20 ms away.
type distant struct{ attach.Jobs }

const distance = 20 * time.Millisecond

func (distant) Read(_ context.Context, name string) (plans.Entry, uint64, error) {
	time.Sleep(distance)
	return plans.Entry{Definition: plans.Definition{Job: job.Job{Name: name, Schedule: "@daily"}, Paused: name == "j7"}, Revision: 1}, 1, nil
}

func TestBulkOrderOfTheMostJobsIsShownInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), shell.DefaultPatience)
		defer cancel()
		c := client.Attach(attach.Parts{Jobs: distant{}, Now: func(context.Context) (time.Time, error) {
			time.Sleep(distance)
			return time.Now(), nil
		}})
		r := &shell.Request{Request: httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx), Client: c}
		var names []string
		for i := range maxBulk {
			names = append(names, fmt.Sprint("j", i))
		}
		lines, changes, err := bulkLines(r, "pause", names)
		if err != nil || ctx.Err() != nil || !changes || len(lines) != maxBulk || lines[7] != "j7: it is already paused." {
			t.Errorf("%d lines, %v, %v, %v", len(lines), changes, err, ctx.Err())
		}
	})
}
