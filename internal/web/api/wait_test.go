package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/web/api"
	"github.com/cronce-io/cronce/job"
)

// ending is a fleet whose slot runs until a time, and then has succeeded. No event says so.
type ending struct {
	attach.Ledger
	attach.News
	at time.Time
}

func (e ending) Read(_ context.Context, s job.Slot) (job.Record, uint64, error) {
	r := job.Record{Slot: s, State: job.Running, Node: "n", Attempt: 1}
	if !time.Now().Before(e.at) {
		r.State, r.Finished = job.Succeeded, e.at
	}
	return r, 3, nil
}

func (ending) Follow(string, func(job.Event)) (func(), error) { return func() {}, nil }
func (ending) Reconnected() <-chan struct{}                   { return nil }

func TestWaitIsAcceptedOnlyWithoutAnOutcome(t *testing.T) {
	t.Parallel()
	for ends, want := range map[time.Duration]int{100 * time.Millisecond: http.StatusOK, time.Hour: http.StatusAccepted} {
		synctest.Test(t, func(t *testing.T) {
			e := ending{at: time.Now().Add(ends)}
			a := api.New(api.Config{Client: client.Attach(attach.Parts{Ledger: e, News: e})})
			defer a.Close()
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/slots/report:@one/wait?timeout=100ms", nil))
			if w.Code != want {
				t.Errorf("slot that ends after %v: status %d, want %d: %s", ends, w.Code, want, w.Body)
			}
		})
	}
}

func TestWaitWithoutTimeAnswersAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := ending{at: time.Now().Add(time.Hour)}
		a := api.New(api.Config{Client: client.Attach(attach.Parts{Ledger: e, News: e})})
		defer a.Close()
		w, began := httptest.NewRecorder(), time.Now()
		a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/slots/report:@one/wait?timeout=0s", nil))
		if took := time.Since(began); w.Code != http.StatusAccepted || took > 0 {
			t.Errorf("status %d after %v, want 202 at once: %s", w.Code, took, w.Body)
		}
	})
}
