package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/lab/apitest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/web/api"
	"github.com/cronce-io/cronce/job"
)

func TestMain(m *testing.M) {
	natstest.WaitMore(8)
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// deadline is a ResponseWriter that remembers its write deadline.
type deadline struct {
	*httptest.ResponseRecorder
	time.Time
}

func (d *deadline) SetWriteDeadline(t time.Time) error { d.Time = t; return nil }

func TestUnansweredTriggerWithoutAKeyIsNotToBeSentAgain(t *testing.T) {
	t.Parallel()
	a := api.New(api.Config{Client: client.Attach(attach.Parts{
		Joined: func(context.Context, string) error { return job.ErrUnknown },
	})})
	defer a.Close()
	for key, again := range map[string]bool{"": false, "k": true} {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/jobs/quick:trigger", nil)
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code != http.StatusGatewayTimeout || strings.Contains(w.Body.String(), "send the same request again") != again || !again && !strings.Contains(w.Body.String(), "another run") {
			t.Errorf("key %q: %d %s", key, w.Code, w.Body)
		}
	}
}

// After the timeout of a wait the API reads the slot once more. A broker that does not answer must not
// end the connection before the answer, 503.
func TestWaitMayReadAsLongAsOtherOperationsAfterItsTimeout(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	apitest.Fleet(t, s.Conn())
	c, err := client.New(t.Context(), s.Conn())
	if err != nil {
		t.Fatal(err)
	}
	a := api.New(api.Config{Client: c, Patience: time.Hour})
	defer a.Close()
	w, began := &deadline{ResponseRecorder: httptest.NewRecorder()}, time.Now()
	a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/slots/quick:@none/wait?timeout=1m", nil))
	if least := began.Add(time.Hour + time.Minute); w.Before(least) {
		t.Errorf("the answer may be written until %v, want %v or later: %s", w.Time, least, w.Body)
	}
}
