//go:build long

package croncetest_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/croncetest"
	"github.com/cronce-io/cronce/job"
)

// A slot that waits for another one of its job is late. It takes half a minute of real time.
func TestAlertsAboutLateSlotsArriveInRealTime(t *testing.T) {
	t.Parallel()
	f := croncetest.New(t, croncetest.At("2026-03-28T06:59:50Z"))
	alerts, err := f.Conn().SubscribeSync("alerts.late")
	if err != nil {
		t.Fatal(err)
	}
	begun, release := make(chan struct{}, 2), make(chan struct{})
	f.Handle(job.Job{
		Name: "report", Schedule: "0 7 * * *", Overlap: job.OverlapQueue,
		OnLate: &job.Alert{NATS: &job.AlertNATS{Subject: "alerts.late"}}, LateAfter: 2 * time.Second,
	}, func(ctx context.Context, _ job.Run) error {
		begun <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	f.Start(1)
	f.Trigger("report", "before", nil)
	<-begun
	alerted := make(chan *nats.Msg, 1)
	go func() {
		defer close(release) // else Advance waits for ever
		if m, err := alerts.NextMsg(90 * time.Second); err == nil {
			alerted <- m
		}
	}()
	f.Advance(time.Minute)
	var late job.Event
	select {
	case m := <-alerted:
		if err := json.Unmarshal(m.Data, &late); err != nil || late.ID != "report:2026-03-28T07:00:00Z" || late.Alert != job.AlertLate {
			t.Errorf("%s, %v", m.Data, err)
		}
	default:
		t.Error("no alert came")
	}
	f.CheckSucceeded("report")
}
