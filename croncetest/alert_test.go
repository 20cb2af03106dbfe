package croncetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cronce-io/cronce/croncetest"
	"github.com/cronce-io/cronce/job"
)

// Give the job a subject for its alerts, and subscribe to it. A heartbeat has only a URL.
func TestAlertsAndHeartbeatsArriveAtTheTest(t *testing.T) {
	t.Parallel()
	beats := make(chan string, 10)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { beats <- r.Header.Get("Cronce-Slot-Id") }))
	t.Cleanup(service.Close)
	f := croncetest.New(t, croncetest.At("2026-03-28T06:30:00Z"))
	alerts, err := f.Conn().SubscribeSync("alerts.>")
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	f.Handle(job.Job{
		Name: "report", Schedule: "0 * * * *",
		OnFailure:   &job.Alert{NATS: &job.AlertNATS{Subject: "alerts.failed"}},
		OnSuccess:   &job.Alert{NATS: &job.AlertNATS{Subject: "alerts.succeeded"}},
		Heartbeat:   &job.AlertHTTP{URL: service.URL},
		OnRecovered: &job.Alert{NATS: &job.AlertNATS{Subject: "alerts.good"}, Template: `{"text": {{json .Title}}, "since": {{json .Since}}}`},
	}, func(context.Context, job.Run) error {
		if runs++; runs == 1 {
			return job.Permanent(errors.New("no \"paper\""))
		}
		return nil
	})
	f.Start(1)
	f.Advance(2 * time.Hour)
	got := map[string]string{}
	for range 3 {
		m, err := alerts.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		got[m.Subject] = string(m.Data)
	}
	var failed job.Event
	if err := json.Unmarshal([]byte(got["alerts.failed"]), &failed); err != nil || failed.ID != "report:2026-03-28T07:00:00Z" || failed.Alert != job.Failed {
		t.Errorf("failed: %s, %v", got["alerts.failed"], err)
	}
	if want := fmt.Sprintf(`{"text": "report recovered", "since": %q}`, "report:2026-03-28T07:00:00Z"); got["alerts.good"] != want {
		t.Errorf("recovered: %s, want %s", got["alerts.good"], want)
	}
	var succeeded job.Event
	if err := json.Unmarshal([]byte(got["alerts.succeeded"]), &succeeded); err != nil || succeeded.ID != "report:2026-03-28T08:00:00Z" || succeeded.Alert != job.Succeeded {
		t.Errorf("succeeded: %s, %v", got["alerts.succeeded"], err)
	}
	select {
	case id := <-beats:
		if id != "report:2026-03-28T08:00:00Z" {
			t.Errorf("the heartbeat of %q", id)
		}
	case <-time.After(4 * time.Minute):
		t.Error("no heartbeat")
	}
}
